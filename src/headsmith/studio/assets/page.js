// A saved page: the model stands in the page itself.
(function () {
  "use strict";
  const { show, themeButton, fromAddress, toAddress } = globalThis.headsmith;
  const view = JSON.parse(document.getElementById("view").textContent);
  document.querySelector("header").append(themeButton());
  show(document.getElementById("model"), view, { state: fromAddress(), onstate: toAddress });
})();
