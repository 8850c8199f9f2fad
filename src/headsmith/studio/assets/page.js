// A saved page: the model stands in the page itself.
(function () {
  "use strict";
  const { show, summary, takeAway, themeButton, fromAddress, toAddress } = globalThis.headsmith;
  const view = JSON.parse(document.getElementById("view").textContent);
  document.querySelector("header").append(themeButton());
  const place = document.getElementById("model");
  if (view.cannot) {
    place.append(...summary(view), takeAway(view));
    place.dataset.settled = "true";
  } else show(place, view, { state: fromAddress(), onstate: toAddress });
})();
