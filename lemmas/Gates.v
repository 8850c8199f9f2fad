(** Gates: rules 7.1, 8, 10.2, 14.1, 14.3, 15 and 25 of docs/certificate.md, for one gate. *)

From Coq Require Import Reals Lra Psatz.
From Headsmith Require Import Basics.
Open Scope R_scope.

Lemma relu_cases z : (0 <= z /\ relu z = z) \/ (z <= 0 /\ relu z = 0).
Proof. destruct (Rle_dec 0 z); [left | right]; split; try lra; [now apply relu_pos | apply relu_neg; lra]. Qed.

(** *** 10.2: a chord of the ReLU has a slope in [0, 1] *)
Theorem chord_slope z z' : exists s, 0 <= s <= 1 /\ relu z' - relu z = s * (z' - z).
Proof.
destruct (Req_dec z z') as [-> | H]; [exists 0; lra |].
exists ((relu z' - relu z) / (z' - z)). split; [| field; lra].
destruct (Rtotal_order z z') as [L | [L | L]]; [| lra |].
- split; [apply Rmult_le_pos; [| left; apply Rinv_0_lt_compat; lra] | apply Rdiv_le_of; [lra |]];
  destruct (relu_cases z) as [[? ->] | [? ->]], (relu_cases z') as [[? ->] | [? ->]]; lra.
- replace ((relu z' - relu z) / (z' - z)) with ((relu z - relu z') / (z - z')) by (field; lra).
  split; [apply Rmult_le_pos; [| left; apply Rinv_0_lt_compat; lra] | apply Rdiv_le_of; [lra |]];
  destruct (relu_cases z) as [[? ->] | [? ->]], (relu_cases z') as [[? ->] | [? ->]]; lra.
Qed.

(** *** 7.1: linear bounds of a gate *)
Theorem gate_below s w : 0 <= s <= 1 -> s * w <= relu w.
Proof. intros. destruct (relu_cases w) as [[? ->] | [? ->]]; nra. Qed.

Theorem gate_above t l h w : l <= w <= h -> relu w - t * w <= Rmax (relu l - t * l) (relu h - t * h).
Proof.
intros H. assert (A := Rmax_l (relu l - t * l) (relu h - t * h)). assert (B := Rmax_r (relu l - t * l) (relu h - t * h)).
set (M := Rmax _ _) in *.
destruct (relu_cases w) as [[? ->] | [? ->]], (relu_cases l) as [[? E] | [? E]], (relu_cases h) as [[? F] | [? F]];
  rewrite E, F in *; destruct (Rle_dec 0 t), (Rle_dec t 1); nra.
Qed.

(** *** 8.2: a gate where the chord crosses zero *)
Theorem gate_chord a b s :
  a < 0 -> 0 < b -> 0 <= s <= 1 ->
  0 <= ((1 - s) * relu a + s * relu b) - relu ((1 - s) * a + s * b) <= Rmin (- a) b.
Proof.
intros Ha Hb Hs. rewrite (relu_neg a), (relu_pos b) by lra.
assert (0 <= (1 - s) * 0 + s * b - relu ((1 - s) * a + s * b) /\
        (1 - s) * 0 + s * b - relu ((1 - s) * a + s * b) <= - a /\
        (1 - s) * 0 + s * b - relu ((1 - s) * a + s * b) <= b).
{ destruct (relu_cases ((1 - s) * a + s * b)) as [[H ->] | [H ->]]; repeat split; nra. }
split; [lra | apply Rmin_glb; lra].
Qed.

(** and what the certificate's text says of it, exactly: |a| b / (|a| + b). *)
Theorem gate_chord_exactly a b s :
  a < 0 -> 0 < b -> 0 <= s <= 1 ->
  ((1 - s) * relu a + s * relu b) - relu ((1 - s) * a + s * b) <= (- a) * b / (- a + b).
Proof.
intros Ha Hb Hs. rewrite (relu_neg a), (relu_pos b) by lra.
apply Rmult_le_reg_r with (- a + b); [lra |].
replace (- a * b / (- a + b) * (- a + b)) with (- a * b) by (field; lra).
destruct (relu_cases ((1 - s) * a + s * b)) as [[H ->] | [H ->]]; nra.
Qed.

(** a gate moves nothing by more than itself *)
Theorem gate_lipschitz z z' : Rabs (relu z' - relu z) <= Rabs (z' - z).
Proof.
destruct (chord_slope z z') as (s & Hs & ->). rewrite Rabs_mult, (Rabs_pos_eq s) by lra.
assert (0 <= Rabs (z' - z)) by apply Rabs_pos. nra.
Qed.

(** *** 8.4: the largest value of E + A s - q s^2 for 0 <= s <= 1 *)
Theorem bend_above E A q s :
  0 <= A -> 0 <= q -> 0 <= s <= 1 ->
  (A < 2 * q -> E + A * s - q * s * s <= E + A * A / (4 * q)) /\ (2 * q <= A -> E + A * s - q * s * s <= E + A - q).
Proof.
intros HA Hq Hs. split; intros H.
- assert (Q : 0 < q) by lra. apply Rmult_le_reg_r with (4 * q); [lra |].
  replace ((E + A * A / (4 * q)) * (4 * q)) with (4 * q * E + A * A) by (field; lra).
  assert (0 <= (A - 2 * q * s) ^ 2) by apply pow2_ge_0. nra.
- assert (0 <= (A - q * (1 + s)) * (1 - s)); [| nra]. apply Rmult_le_pos; nra.
Qed.

(** *** 14.1: a soft threshold has slopes in [0, 1] *)
Theorem soft_threshold_slope c z z' :
  0 <= c -> let f w := relu (w - c) - relu (- c - w) in
  exists s, 0 <= s <= 1 /\ f z' - f z = s * (z' - z).
Proof.
intros Hc f. destruct (Req_dec z z') as [-> | H]; [exists 0; lra |].
assert (up : forall x y, x <= y -> 0 <= f y - f x <= y - x).
{ intros x y L. unfold f. destruct (relu_cases (x - c)) as [[? ->] | [? ->]], (relu_cases (y - c)) as [[? ->] | [? ->]],
    (relu_cases (- c - x)) as [[? ->] | [? ->]], (relu_cases (- c - y)) as [[? ->] | [? ->]]; lra. }
exists ((f z' - f z) / (z' - z)). split; [| field; lra].
destruct (Rtotal_order z z') as [L | [L | L]]; [| lra |].
- specialize (up z z' ltac:(lra)).
  split; [apply Rmult_le_pos; [lra | left; apply Rinv_0_lt_compat; lra] | apply Rdiv_le_of; lra].
- specialize (up z' z ltac:(lra)). replace ((f z' - f z) / (z' - z)) with ((f z - f z') / (z - z')) by (field; lra).
  split; [apply Rmult_le_pos; [lra | left; apply Rinv_0_lt_compat; lra] | apply Rdiv_le_of; lra].
Qed.

(** *** 14, folds: z - 2 relu (z - t) has slopes in [-1, 1] *)
Theorem fold_slope t z z' : Rabs ((z' - 2 * relu (z' - t)) - (z - 2 * relu (z - t))) <= Rabs (z' - z).
Proof.
destruct (chord_slope (z - t) (z' - t)) as (s & Hs & E).
replace (z' - 2 * relu (z' - t) - (z - 2 * relu (z - t))) with ((1 - 2 * s) * (z' - z)) by lra.
rewrite Rabs_mult. assert (Rabs (1 - 2 * s) <= 1) by (apply Rabs_le; lra).
assert (0 <= Rabs (z' - z)) by apply Rabs_pos. nra.
Qed.

(** *** 14.3: what the norm rule knows of one gate v = s u *)
Theorem gate_in_norms s u : 0 <= s <= 1 -> 0 <= (s * u) * (u - s * u).
Proof. intros. replace (s * u * (u - s * u)) with (s * (1 - s) * (u * u)) by ring. apply Rmult_le_pos; nra. Qed.

(** dense: with D^2 / Y <= r^2 and u = A D, the form of (D, v) with the diagonal L is at most r^2; *)
Theorem dense_gate Y L A D s r :
  0 < Y -> 0 <= L -> 0 <= s <= 1 -> D * D / Y <= r * r ->
  let v := s * (A * D) in D * D / Y + L * (v * v) - L * v * (A * D) <= r * r.
Proof.
intros HY HL Hs H v. assert (0 <= v * (A * D - v)) by now apply gate_in_norms. nra.
Qed.

(** it is positive if L - L A Y A L / 4 is, and then v^2 is at most its inverse, G, and Y' = A L Y / 2 more. *)
Theorem dense_gate_bound Y L A D v r :
  0 < Y -> 0 < L -> let P := L - L * A * Y * A * L / 4 in 0 < P ->
  D * D / Y + L * (v * v) - L * v * (A * D) <= r * r ->
  v * v <= r * r * (/ P).
Proof.
intros HY HL P HP H.
apply Rmult_le_reg_r with P; [exact HP |]. replace (r * r * / P * P) with (r * r) by (field; lra).
assert (0 <= (D - L * v * A * Y / 2) ^ 2 / Y).
{ apply Rmult_le_pos; [apply pow2_ge_0 | left; now apply Rinv_0_lt_compat]. }
replace (D * D / Y + L * (v * v) - L * v * (A * D)) with ((D - L * v * A * Y / 2) ^ 2 / Y + v * v * P) in H; [lra |].
unfold P. field. lra.
Qed.

(** flat: |v| <= |u|. *)
Theorem flat_gate B s u : 0 < B -> 0 <= s <= 1 -> (s * u) * (s * u) / B <= u * u / B.
Proof.
intros HB Hs. apply Rmult_le_compat_r; [left; now apply Rinv_0_lt_compat |].
assert (0 <= (1 - s * s) * (u * u)); [apply Rmult_le_pos; nra | nra].
Qed.

(** *** 15: exchanges *)
Definition exchange c d x m : R := x - relu (x - m - c) + relu (m - x - d).

Theorem exchange_off c d x m x' m' e :
  0 <= c -> 0 <= d -> Rabs (x' - x) <= e -> Rabs (m' - m) <= e ->
  Rabs (exchange c d x' m' - exchange c d x m) <= e.
Proof.
intros Hc Hd Hx Hm. apply Rabs_le_iff in Hx, Hm. unfold exchange. apply Rabs_le.
destruct (relu_cases (x - m - c)) as [[? ->] | [? ->]], (relu_cases (x' - m' - c)) as [[? ->] | [? ->]],
  (relu_cases (m - x - d)) as [[? ->] | [? ->]], (relu_cases (m' - x' - d)) as [[? ->] | [? ->]]; lra.
Qed.

(** *** 25: a gate is p z, up to [0, max (- p a, (1 - p) b)] *)
Theorem gate_on_a_cell p a b z :
  0 <= p <= 1 -> a <= z <= b -> 0 <= relu z - p * z <= Rmax (Rmax (- p * a) ((1 - p) * b)) 0.
Proof.
intros Hp Hz. assert (A := Rmax_l (Rmax (- p * a) ((1 - p) * b)) 0).
assert (B := Rmax_l (- p * a) ((1 - p) * b)). assert (C := Rmax_r (- p * a) ((1 - p) * b)).
set (M := Rmax (Rmax _ _) 0) in *.
destruct (relu_cases z) as [[? ->] | [? ->]]; split; nra.
Qed.
