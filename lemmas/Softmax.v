(** Means of a softmax whose scores are off: rules 12.1, 12.2, 12.5 and 12.9 of docs/certificate.md. *)

From Coq Require Import Reals List Lra Lia.
From Coquelicot Require Import Coquelicot.
From Interval Require Import Tactic.
From Headsmith Require Import Constants Basics.
Import ListNotations.
Open Scope R_scope.

(** *** 12.1: exp *)

(** exp within 4 units in the last place is off by a factor 1 + x, |x| <= 8 u; as a change of its argument that is at
    most EXP_FACTOR times 4 u, for the u of every format. *)
Theorem exp_as_change_of_argument u x :
  0 <= u <= / 2 ^ 24 -> Rabs x <= 8 * u -> Rabs (ln (1 + x)) <= EXP_FACTOR * 4 * u.
Proof.
intros Hu Hx. apply Rabs_le_iff in Hx.
assert (H : forall y, 0 <= y <= / 2 ^ 24 -> - (EXP_FACTOR * 4 * y) <= ln (1 - 8 * y)).
{ intros y Hy.
  assert (exp (- (EXP_FACTOR * 4 * y)) <= 1 - 8 * y).
  { assert (E : 1 + EXP_FACTOR * 4 * y <= exp (EXP_FACTOR * 4 * y)) by apply exp_ge_linear.
    rewrite exp_Ropp. apply Rmult_le_reg_l with (exp (EXP_FACTOR * 4 * y)); [apply exp_pos |].
    rewrite Rinv_r by (apply Rgt_not_eq, exp_pos).
    assert (0 <= 1 - 8 * y) by interval.
    assert (1 <= (1 + EXP_FACTOR * 4 * y) * (1 - 8 * y)).
    { assert (8 <= EXP_FACTOR * 4 * (1 - 8 * / 2 ^ 24)) by (unfold EXP_FACTOR; interval).
      assert (EXP_FACTOR * 4 * (8 * y) <= EXP_FACTOR * 4 * (8 * / 2 ^ 24)) by (unfold EXP_FACTOR; lra).
      nra. }
    nra. }
  rewrite <- (ln_exp (- (EXP_FACTOR * 4 * y))). apply ln_mono; [apply exp_pos | exact H]. }
assert (P : 0 < 1 - 8 * u) by interval.
apply Rabs_le. split.
- apply Rle_trans with (ln (1 - 8 * u)); [now apply H | apply ln_mono; lra].
- apply Rle_trans with x.
  + apply Rle_trans with (ln (exp x)); [apply ln_mono; [lra | apply exp_ge_linear] | rewrite ln_exp; lra].
  + unfold EXP_FACTOR. assert (0 <= u) by lra. lra.
Qed.

(** The small kernel has EXP_FACTOR times 4 as one number. *)
Theorem exp_shift_is_the_same : EXP_SHIFT = EXP_FACTOR * 4.
Proof. unfold EXP_SHIFT, EXP_FACTOR. lra. Qed.

(** *** 12.1: shift *)

(** tanh (d / 2) *)
Definition half_tanh (d : R) : R := (exp d - 1) / (exp d + 1).

Lemma half_tanh_range d : 0 <= d -> 0 <= half_tanh d <= Rmin (d / 2) 1.
Proof.
intros Hd. unfold half_tanh. assert (E := exp_ge_linear d). assert (P := exp_pos d).
assert (Q : (exp d - 1) / (exp d + 1) <= d / 2).
{ apply Rdiv_le_of; [lra |].
  (* 2 (e^d - 1) <= d (e^d + 1): the difference is 0 at 0, and its slope d e^d - e^d + 1 is not negative *)
  assert (G : 0 <= d * (exp d + 1) - 2 * (exp d - 1)); [| lra].
  set (f := fun x => x * (exp x + 1) - 2 * (exp x - 1)).
  set (f' := fun x => x * exp x - exp x + 1).
  assert (D : forall x, derivable_pt_lim f x (f' x)).
  { intros x. apply is_derive_Reals. unfold f, f'. auto_derive; [trivial | ring]. }
  replace 0 with (f 0) by (unfold f; rewrite exp_0; ring). fold (f d).
  destruct Hd as [Hd | <-]; [| right; reflexivity].
  destruct (MVT_cor2 f f' 0 d Hd) as [c [Hc Hi]]; [auto |].
  assert (0 <= f' c).
  { unfold f'. assert (1 + - c <= exp (- c)) by apply exp_ge_linear.
    assert (exp (- c) * exp c = 1) by (rewrite <- exp_plus; replace (- c + c) with 0 by ring; apply exp_0).
    assert (0 < exp c) by apply exp_pos. nra. }
  nra. }
split.
- unfold Rdiv. apply Rmult_le_pos; [lra | left; apply Rinv_0_lt_compat; lra].
- apply Rmin_glb; [exact Q | apply Rdiv_le_of; lra].
Qed.

Lemma moved_mean_above {A} (l : list A) w v m low high d :
  l <> [] -> (forall a, In a l -> 0 < w a) -> (forall a, In a l -> low <= v a <= high) ->
  (forall a, In a l -> Rabs (m a) <= d) ->
  mean (fun a => w a * exp (m a)) v l - mean w v l <= (high - low) * half_tanh d.
Proof.
intros Hl Hw Hv Hm.
set (S := high - low). set (E := exp d). set (P := sum w l).
set (W := sum (fun a => w a * exp (m a)) l).
set (Q := sum (fun a => w a * (v a - low)) l).
set (X := sum (fun a => w a * exp (m a) * (v a - low)) l).
set (Y := sum (fun a => w a * exp (m a) * (high - v a)) l).
assert (Hd : 0 <= d).
{ destruct l as [| a r]; [congruence |]. apply Rle_trans with (Rabs (m a)); [apply Rabs_pos | apply Hm; now left]. }
assert (HE : 1 <= E) by (unfold E; pose proof (exp_ge_linear d); lra).
assert (PP : 0 < P) by now apply sum_pos.
assert (PW : 0 < W) by (apply sum_pos; auto; intros; apply Rmult_lt_0_compat; [auto | apply exp_pos]).
assert (HS : 0 <= S).
{ unfold S. destruct l as [| a r]; [congruence |]. assert (low <= v a <= high) by (apply Hv; now left). lra. }
assert (bounds : forall a, In a l -> / E <= exp (m a) <= E).
{ intros a Ha. specialize (Hm a Ha). apply Rabs_le_iff in Hm. unfold E. rewrite <- exp_Ropp. split; apply exp_mono; lra. }
assert (HX : X <= E * Q).
{ unfold X, Q. rewrite <- sum_scale. apply sum_le. intros a Ha.
  assert (/ E <= exp (m a) <= E) by auto. assert (low <= v a <= high) by auto. assert (0 < w a) by auto.
  assert (0 <= w a * (v a - low)) by nra. nra. }
assert (HY : S * P - Q <= E * Y).
{ assert (F : S * P - Q = sum (fun a => w a * (high - v a)) l).
  { unfold S, P, Q. rewrite <- sum_scale, <- sum_minus. apply sum_ext. intros. ring. }
  rewrite F. unfold Y. rewrite <- sum_scale. apply sum_le. intros a Ha.
  assert (B : / E <= exp (m a)) by (apply bounds; auto). assert (low <= v a <= high) by auto. assert (0 < w a) by auto.
  assert (1 <= E * exp (m a)).
  { replace 1 with (E * / E) by (apply Rinv_r; lra). apply Rmult_le_compat_l; lra. }
  assert (0 <= w a * (high - v a)) by nra. nra. }
assert (HQ : 0 <= Q) by (apply sum_nonneg; intros a Ha; specialize (Hv a Ha); specialize (Hw a Ha); nra).
assert (HX0 : 0 <= X).
{ apply sum_nonneg; intros a Ha; specialize (Hv a Ha); specialize (Hw a Ha); pose proof (exp_pos (m a)).
  apply Rmult_le_pos; nra. }
assert (HY0 : 0 <= Y).
{ apply sum_nonneg; intros a Ha; specialize (Hv a Ha); specialize (Hw a Ha); pose proof (exp_pos (m a)).
  apply Rmult_le_pos; nra. }
assert (HQS : 0 <= S * P - Q).
{ unfold S, P, Q. rewrite <- sum_scale, <- sum_minus. apply sum_nonneg. intros a Ha.
  specialize (Hv a Ha); specialize (Hw a Ha); nra. }
assert (HXY : X + Y = S * W).
{ unfold X, Y, S, W. rewrite <- sum_scale, <- sum_plus. apply sum_ext. intros. ring. }
assert (M1 : mean w v l = low + Q / P).
{ unfold mean, Q. fold P.
  replace (sum (fun a => w a * (v a - low)) l) with (sum (fun a => w a * v a) l - low * P);
    [field; lra |]. unfold P. rewrite <- sum_scale, <- sum_minus. apply sum_ext. intros. ring. }
assert (M2 : mean (fun a => w a * exp (m a)) v l = low + X / W).
{ unfold mean, X. fold W.
  replace (sum (fun a => w a * exp (m a) * (v a - low)) l) with (sum (fun a => w a * exp (m a) * v a) l - low * W);
    [field; lra |]. unfold W. rewrite <- sum_scale, <- sum_minus. apply sum_ext. intros. ring. }
rewrite M1, M2. fold S. unfold half_tanh. fold E.
set (q := Q / P). assert (Eq : Q = q * P) by (unfold q; field; lra).
assert (q0 : 0 <= q) by (unfold q; apply Rmult_le_pos; [lra | left; now apply Rinv_0_lt_compat]).
assert (qS : q <= S) by (unfold q; apply Rdiv_le_of; lra).
rewrite Eq in *. clear M1 M2.
enough (X / W <= q + S * ((E - 1) / (E + 1))) by lra.
apply Rdiv_le_of; [exact PW |].
apply Rmult_le_reg_l with ((E + 1)); [lra |].
replace ((E + 1) * ((q + S * ((E - 1) / (E + 1))) * W)) with (((E + 1) * q + S * (E - 1)) * W) by (field; lra).
destruct HS as [HS | HS].
2: { assert (q = 0) by lra. assert (X = 0) by nra. rewrite <- HS, H, H0. lra. }
apply Rmult_le_reg_l with S; [exact HS |].
replace (S * (((E + 1) * q + S * (E - 1)) * W)) with (((E + 1) * q + S * (E - 1)) * (X + Y)) by (rewrite HXY; ring).
enough ((2 * S - (E + 1) * q) * X <= ((E + 1) * q + S * (E - 1)) * Y) by nra.
destruct (Rle_dec (2 * S - (E + 1) * q) 0) as [N | N].
- apply Rle_trans with 0; [nra |]. apply Rmult_le_pos; nra.
- apply Rle_trans with ((2 * S - (E + 1) * q) * (E * (q * P))); [apply Rmult_le_compat_l; lra |].
  apply Rmult_le_reg_l with E; [lra |].
  apply Rle_trans with (((E + 1) * q + S * (E - 1)) * (S * P - q * P)).
  + assert (0 <= (E - 1) * ((E + 1) * q - S) ^ 2) by (apply Rmult_le_pos; [lra | apply pow2_ge_0]).
    assert (0 <= P * ((E - 1) * ((E + 1) * q - S) ^ 2)) by (apply Rmult_le_pos; lra). nra.
  + replace (E * (((E + 1) * q + S * (E - 1)) * Y)) with (((E + 1) * q + S * (E - 1)) * (E * Y)) by ring.
    apply Rmult_le_compat_l; nra.
Qed.

(** 12.1, shift: a mean of values in an interval moves by at most its length times tanh (d / 2), where scores move by d. *)
Theorem moved_mean {A} (l : list A) w v m low high d :
  l <> [] -> (forall a, In a l -> 0 < w a) -> (forall a, In a l -> low <= v a <= high) ->
  (forall a, In a l -> Rabs (m a) <= d) ->
  Rabs (mean (fun a => w a * exp (m a)) v l - mean w v l) <= (high - low) * half_tanh d.
Proof.
intros Hl Hw Hv Hm. apply Rabs_le. split; [| now apply moved_mean_above].
assert (H := moved_mean_above l w (fun a => - v a) m (- high) (- low) d Hl Hw).
rewrite !mean_opp in H.
assert (forall a, In a l -> - high <= - v a <= - low) by (intros a Ha; specialize (Hv a Ha); lra).
specialize (H H0 Hm). lra.
Qed.

(** And two tokens attain it: values 1 and 0, weights 1 and e^d. *)
Theorem moved_mean_attained d :
  let w (a : bool) := if a then 1 else exp d in
  let v (a : bool) := if a then 1 else 0 in
  let m (a : bool) := if a then d else - d in
  mean (fun a => w a * exp (m a)) v [true; false] - mean w v [true; false] = half_tanh d.
Proof.
unfold mean, half_tanh. simpl. rewrite exp_Ropp. assert (P := exp_pos d). field. lra.
Qed.

(** *** 12.1: outside, leak *)

(** Silent tokens score at least [a] less than some active one; all scores are off by at most [d]. *)
Theorem outside_weight {A} (silent active : list A) s m a d best :
  In best active -> (forall j, In j silent -> s j <= s best - a) ->
  (forall j, In j (silent ++ active) -> Rabs (m j) <= d) ->
  sum (fun j => exp (s j + m j)) silent
  <= INR (length silent) * exp (2 * d - a) * sum (fun j => exp (s j + m j)) (silent ++ active).
Proof.
intros Hb Hs Hm.
set (T := sum _ (silent ++ active)).
assert (B : exp (s best + m best) <= T).
{ apply (sum_le_one (fun j => exp (s j + m j))); [intros; left; apply exp_pos | apply in_or_app; now right]. }
apply Rle_trans with (sum (fun _ => exp (2 * d - a) * T) silent); [| rewrite sum_const; lra].
apply sum_le. intros j Hj.
apply Rle_trans with (exp (2 * d - a) * exp (s best + m best)).
- rewrite <- exp_plus. apply exp_mono.
  assert (Rabs (m j) <= d) by (apply Hm, in_or_app; now left).
  assert (Rabs (m best) <= d) by (apply Hm, in_or_app; now right).
  apply Rabs_le_iff in H, H0. specialize (Hs j Hj). lra.
- apply Rmult_le_compat_l; [left; apply exp_pos | exact B].
Qed.

(** A mean of which silent tokens have the part [w] is within 2 w V of that of the active ones. *)
Theorem leak w V active silent :
  0 <= w -> Rabs active <= V -> Rabs silent <= V -> Rabs ((1 - w) * active + w * silent - active) <= 2 * w * V.
Proof.
intros Hw Ha Hs. replace ((1 - w) * active + w * silent - active) with (w * (silent - active)) by ring.
rewrite Rabs_mult, (Rabs_pos_eq w) by lra.
apply Rabs_le_iff in Ha, Hs. assert (Rabs (silent - active) <= 2 * V) by (apply Rabs_le; lra). nra.
Qed.

(** *** 12.1 and 12.5: maximum, for every number of tokens *)

Lemma excess M u : 0 <= M -> (u - M) * exp (- u) <= exp (- M - 1).
Proof.
intros HM. assert (H := exp_ge_linear (u - M - 1)).
replace (exp (- M - 1)) with (exp (u - M - 1) * exp (- u)) by (rewrite <- exp_plus; f_equal; ring).
apply Rmult_le_compat_r; [left; apply exp_pos | lra].
Qed.

(** The mean of z, weighed by e^(b z + m), is below the largest by at most M / b, for every M with
    n e^(2d - 1 - M) <= M: the kernel's M is W(n e^(2d - 1)), and this inequality is all that it needs of it. *)
Theorem maximum_below {A} (others : list A) (z m : A -> R) top slip b d M :
  0 < b -> 0 <= M -> (forall j, In j others -> z j <= top) -> (forall j, In j others -> Rabs (m j) <= d) ->
  Rabs slip <= d -> INR (length others) * exp (2 * d - 1 - M) <= M ->
  let first := exp (b * top + slip) in
  let w j := exp (b * z j + m j) in
  0 <= top - (first * top + sum (fun j => w j * z j) others) / (first + sum w others) <= M / b.
Proof.
intros Hb HM Hz Hm Hslip HW first w.
assert (F : 0 < first) by apply exp_pos.
assert (W : 0 <= sum w others) by (apply sum_nonneg; intros; left; apply exp_pos).
assert (E : top - (first * top + sum (fun j => w j * z j) others) / (first + sum w others)
            = sum (fun j => w j * (top - z j)) others / (first + sum w others)).
{ replace (sum (fun j => w j * (top - z j)) others) with (top * sum w others - sum (fun j => w j * z j) others).
  - field. lra.
  - rewrite <- sum_scale, <- sum_minus. apply sum_ext. intros. ring. }
rewrite E. split.
- apply Rmult_le_pos; [| left; apply Rinv_0_lt_compat; lra].
  apply sum_nonneg. intros j Hj. apply Rmult_le_pos; [left; apply exp_pos | specialize (Hz j Hj); lra].
- apply Rdiv_le_of; [lra |]. apply Rmult_le_reg_l with b; [exact Hb |].
  replace (b * (M / b * (first + sum w others))) with (M * first + M * sum w others) by (field; lra).
  enough (sum (fun j => w j * (b * (top - z j) - M)) others <= M * first).
  { rewrite <- (sum_scale M), <- sum_scale.
    assert (G : sum (fun j => b * (w j * (top - z j))) others
            = sum (fun j => w j * (b * (top - z j) - M)) others + sum (fun j => M * w j) others).
    { rewrite <- sum_plus. apply sum_ext. intros. ring. }
    rewrite G. lra. }
  apply Rle_trans with (sum (fun _ => exp (2 * d - 1 - M) * first) others).
  2: { rewrite sum_const. nra. }
  apply sum_le. intros j Hj. set (u := b * (top - z j)).
  destruct (Rle_dec u M) as [L | L].
  + apply Rle_trans with 0; [| apply Rmult_le_pos; left; [apply exp_pos | exact F]].
    assert (0 < w j) by apply exp_pos. nra.
  + assert (w j <= exp (2 * d) * exp (- u) * first).
    { unfold w, first. rewrite <- !exp_plus. apply exp_mono. unfold u.
      specialize (Hm j Hj). apply Rabs_le_iff in Hm, Hslip. lra. }
    apply Rle_trans with (exp (2 * d) * exp (- u) * first * (u - M)).
    * apply Rmult_le_compat_r; lra.
    * replace (exp (2 * d) * exp (- u) * first * (u - M)) with (exp (2 * d) * first * ((u - M) * exp (- u))) by ring.
      replace (exp (2 * d - 1 - M) * first) with (exp (2 * d) * first * exp (- M - 1)).
      -- apply Rmult_le_compat_l; [apply Rmult_le_pos; left; [apply exp_pos | exact F] | now apply excess].
      -- replace (2 * d - 1 - M) with (2 * d + (- M - 1)) by ring. rewrite (exp_plus (2 * d)). ring.
Qed.

(** *** 12.2: the sink head *)

Definition gate (t z : R) : R := z * (exp t / (1 + exp t)).

(** What a sink head computes, z s(t + m), is never above the ReLU, and below it by at most M / (b (1 - r)) and
    |z| e^a / 2, where t = b z and |m| <= r |t| + a. *)
Theorem sink_head b z m r a M :
  0 < b -> 0 <= r < 1 -> 0 <= a -> Rabs m <= r * Rabs (b * z) + a -> 0 <= M -> exp (a - 1 - M) <= M ->
  0 <= relu z - gate (b * z + m) z <= Rmin (M / (b * (1 - r))) (Rabs z * exp a / 2).
Proof.
intros Hb Hr Ha Hm HM HW.
(* both signs of z: the distance is |z| / (1 + e^x) with x >= (1 - r) b |z| - a *)
assert (main : exists x, (1 - r) * (b * Rabs z) - a <= x /\ relu z - gate (b * z + m) z = Rabs z / (1 + exp x)).
{ assert (Habs : Rabs (b * z) = b * Rabs z) by (rewrite Rabs_mult, (Rabs_pos_eq b); lra).
  rewrite Habs in Hm. apply Rabs_le_iff in Hm.
  destruct (Rle_dec 0 z) as [Hz | Hz].
  - exists (b * z + m). rewrite (Rabs_pos_eq z) in * by lra. split; [lra |].
    rewrite relu_pos by lra. unfold gate. assert (0 < exp (b * z + m)) by apply exp_pos. field. lra.
  - exists (- (b * z + m)). rewrite (Rabs_left z) in * by lra. split; [lra |].
    rewrite relu_neg by lra. unfold gate. rewrite exp_Ropp. assert (0 < exp (b * z + m)) by apply exp_pos. field. lra. }
destruct main as [x [Hx ->]].
assert (Z : 0 <= Rabs z) by apply Rabs_pos. assert (X := exp_pos x).
split; [apply Rmult_le_pos; [lra | left; apply Rinv_0_lt_compat; lra] |].
set (y := (1 - r) * (b * Rabs z)). fold y in Hx.
assert (Y : 0 <= y) by (unfold y; apply Rmult_le_pos; [lra | nra]).
assert (EX : exp (y - a) <= exp x) by now apply exp_mono.
apply Rmin_glb.
- apply Rdiv_le_of; [lra |].
  replace (M / (b * (1 - r)) * (1 + exp x)) with (M * (1 + exp x) / (b * (1 - r))) by (field; lra).
  assert (B : 0 < b * (1 - r)) by (apply Rmult_lt_0_compat; lra).
  apply Rmult_le_reg_r with (b * (1 - r)); [exact B |].
  replace (M * (1 + exp x) / (b * (1 - r)) * (b * (1 - r))) with (M * (1 + exp x)) by (field; lra).
  replace (Rabs z * (b * (1 - r))) with y by (unfold y; ring).
  apply Rle_trans with (M * (1 + exp (y - a))); [| apply Rmult_le_compat_l; lra].
  (* (y - M) e^(a - y) <= e^(a - M - 1) <= M *)
  assert (H := excess M y HM).
  assert (P : 0 < exp (y - a)) by apply exp_pos.
  assert (E1 : exp (- y) * exp (y - a) = exp (- a)) by (rewrite <- exp_plus; f_equal; ring).
  assert (exp a * exp (- a) = 1) by (rewrite <- exp_plus; replace (a + - a) with 0 by ring; apply exp_0).
  assert (E2 : exp (- M - 1) = exp (a - 1 - M) * exp (- a)) by (rewrite <- exp_plus; f_equal; ring).
  assert (NA : 0 < exp (- a)) by apply exp_pos.
  assert (Q1 : (y - M) * exp (- y) * exp (y - a) <= exp (- M - 1) * exp (y - a)) by (apply Rmult_le_compat_r; lra).
  rewrite Rmult_assoc, E1, E2 in Q1.
  assert (Q2 : y - M <= exp (a - 1 - M) * exp (y - a)) by (apply Rmult_le_reg_r with (exp (- a)); [exact NA | lra]).
  assert (exp (a - 1 - M) * exp (y - a) <= M * exp (y - a)) by (apply Rmult_le_compat_r; lra).
  lra.
- apply Rdiv_le_of; [lra |].
  assert (exp (- a) <= exp x) by (apply Rle_trans with (exp (y - a)); [apply exp_mono; lra | exact EX]).
  assert (exp a * exp (- a) = 1) by (rewrite <- exp_plus; replace (a + - a) with 0 by ring; apply exp_0).
  assert (1 <= exp a) by (pose proof (exp_ge_linear a); lra).
  assert (2 <= exp a * (1 + exp x)).
  { apply Rle_trans with (exp a + exp a * exp x); [| lra].
    assert (exp a * exp (- a) <= exp a * exp x) by (apply Rmult_le_compat_l; lra). lra. }
  replace (Rabs z * exp a / 2 * (1 + exp x)) with (Rabs z * (exp a * (1 + exp x)) / 2) by field. nra.
Qed.

(** The constant of a gate whose scores are exact: it is above W(1/e), *)
Theorem sink_constant b z : 0 < b -> 0 <= relu z - gate (b * z) z <= SINK / b.
Proof.
intros Hb. destruct (sink_head b z 0 0 0 SINK) as [L U]; try lra.
- rewrite Rabs_R0, Rmult_0_l. lra.
- unfold SINK. lra.
- unfold SINK. interval with (i_prec 80).
- rewrite Rplus_0_r in L, U. split; [exact L |].
  apply Rle_trans with (1 := U). apply Rle_trans with (1 := Rmin_l _ _). right. field. lra.
Qed.

(** and larger by less than 2^-53 than what is attained (b = 1, z = 1 + W(1/e)). *)
Theorem sink_constant_is_tight : SINK - / 2 ^ 53 <= relu (1 + SINK) - gate (1 + SINK) (1 + SINK).
Proof.
rewrite relu_pos by (unfold SINK; lra). unfold gate, SINK. interval with (i_prec 100).
Qed.

(** What is read wrong by a query (q) and by a value (v): the head returns (z + v) s, s in [0, 1], and (z + q) s is
    below the ReLU by what the theorem above allows; c is the slope of the ReLU between z and z + q. *)
Theorem sink_read v q s c read :
  Rabs v <= read -> Rabs q <= read -> 0 <= s <= 1 -> 0 <= c <= 1 -> Rabs (v * s + q * (c - s)) <= 2 * read.
Proof.
intros Hv Hq Hs Hc. apply Rabs_le_iff in Hv, Hq. apply Rabs_le. split; nra.
Qed.

(** *** 12.9: scores that are off count by the weights of their tokens *)

Lemma exp_minus_one m d : Rabs m <= d -> d <= 1 -> Rabs (exp m - 1) <= d + d * d.
Proof.
intros Hm Hd. apply Rabs_le_iff in Hm. apply Rabs_le. split.
- pose proof (exp_ge_linear m). nra.
- assert (0 <= d) by lra. assert (exp m <= exp d) by (apply exp_mono; lra).
  enough (exp d <= 1 + d + d * d) by lra.
  (* e^d (1 - d/2) <= 1 + d/2 for d >= 0, from tanh (d/2) <= d/2 *)
  assert (Q := half_tanh_range d H). unfold half_tanh in Q. assert (E := exp_pos d).
  assert (exp d - 1 <= d / 2 * (exp d + 1)).
  { apply Rmult_le_reg_r with (/ (exp d + 1)); [apply Rinv_0_lt_compat; lra |].
    replace (d / 2 * (exp d + 1) * / (exp d + 1)) with (d / 2) by (field; lra).
    destruct Q as [_ Q]. apply Rle_trans with (1 := Q), Rmin_l. }
  assert (exp d * (1 - d / 2) <= (1 + d + d * d) * (1 - d / 2)); [| nra].
  assert (0 <= d * d * (1 - d)) by (apply Rmult_le_pos; nra). nra.
Qed.

Theorem weighed_move {A} (l : list A) (p v m d P : A -> R) :
  sum p l = 1 -> (forall k, In k l -> 0 <= p k <= P k) -> (forall k, In k l -> Rabs (m k) <= d k <= 1) ->
  let g k := d k + d k * d k in
  let left := 1 - sum (fun k => P k * g k) l in
  0 < left ->
  Rabs (mean (fun k => p k * exp (m k)) v l - mean p v l)
  <= sum (fun k => P k * g k * sum (fun j => P j * Rabs (v k - v j)) l) l / left.
Proof.
intros H1 Hp Hm g left Hleft.
set (mu := sum (fun k => p k * v k) l).
assert (G0 : forall k, In k l -> 0 <= g k).
{ intros k Hk. destruct (Hm k Hk). assert (0 <= d k) by (apply Rle_trans with (2 := H), Rabs_pos). unfold g. nra. }
assert (E : forall k, In k l -> Rabs (exp (m k) - 1) <= g k) by (intros k Hk; destruct (Hm k Hk); now apply exp_minus_one).
assert (div : left <= sum (fun k => p k * exp (m k)) l).
{ replace (sum (fun k => p k * exp (m k)) l) with (1 - sum (fun k => p k * (1 - exp (m k))) l).
  2: { rewrite <- H1 at 1. rewrite <- sum_minus. apply sum_ext. intros. ring. }
  enough (sum (fun k => p k * (1 - exp (m k))) l <= sum (fun k => P k * g k) l) by (unfold left; lra).
  apply sum_le. intros k Hk. specialize (Hp k Hk). specialize (E k Hk). apply Rabs_le_iff in E. specialize (G0 k Hk).
  apply Rle_trans with (p k * g k); [apply Rmult_le_compat_l; lra | apply Rmult_le_compat_r; lra]. }
assert (away : forall k, In k l -> Rabs (v k - mu) <= sum (fun j => P j * Rabs (v k - v j)) l).
{ intros k Hk. replace (v k - mu) with (sum (fun j => p j * (v k - v j)) l).
  - apply Rle_trans with (1 := sum_abs _ _). apply sum_le. intros j Hj. specialize (Hp j Hj).
    rewrite Rabs_mult, (Rabs_pos_eq (p j)) by lra. apply Rmult_le_compat_r; [apply Rabs_pos | lra].
  - transitivity (sum (fun j => v k * p j - p j * v j) l); [apply sum_ext; intros; ring |].
    rewrite sum_minus, sum_scale, H1. fold mu. ring. }
set (W := sum (fun k => p k * exp (m k)) l) in *.
assert (form : mean (fun k => p k * exp (m k)) v l - mean p v l = sum (fun k => p k * (exp (m k) - 1) * (v k - mu)) l / W).
{ unfold mean. rewrite H1. fold mu W.
  assert (F : sum (fun k => p k * (exp (m k) - 1) * (v k - mu)) l = sum (fun k => p k * exp (m k) * v k) l - mu * W).
  { transitivity (sum (fun k => (p k * exp (m k) * v k - p k * v k) - mu * (p k * exp (m k) - p k)) l).
    - apply sum_ext. intros. ring.
    - rewrite sum_minus, sum_minus, sum_scale, sum_minus, H1. fold mu W. ring. }
  rewrite F. field. lra. }
rewrite form. unfold Rdiv. rewrite Rabs_mult, (Rabs_pos_eq (/ W)) by (left; apply Rinv_0_lt_compat; lra).
apply Rmult_le_compat.
- apply Rabs_pos.
- left; apply Rinv_0_lt_compat; lra.
- apply Rle_trans with (1 := sum_abs _ _). apply sum_le. intros k Hk.
  rewrite !Rabs_mult. specialize (Hp k Hk). rewrite (Rabs_pos_eq (p k)) by lra.
  specialize (E k Hk). specialize (away k Hk). specialize (G0 k Hk).
  apply Rmult_le_compat; [apply Rmult_le_pos; [lra | apply Rabs_pos] | apply Rabs_pos | | exact away].
  apply Rmult_le_compat; [lra | apply Rabs_pos | lra | exact E].
- apply Rinv_le_contravar; lra.
Qed.

(** *** 16: how far values are from their mean *)
Theorem mean_deviation {A} (l : list A) (w v : A -> R) low high :
  sum w l = 1 -> (forall k, In k l -> 0 <= w k) -> (forall k, In k l -> low <= v k <= high) -> low < high ->
  let mu := sum (fun k => w k * v k) l in
  sum (fun k => w k * Rabs (v k - mu)) l <= (high - low) / 2.
Proof.
intros H1 Hw Hv H mu.
assert (L : low <= mu).
{ replace low with (sum (fun k => low * w k) l) by (rewrite sum_scale, H1; ring). apply sum_le.
  intros k Hk. specialize (Hw k Hk). specialize (Hv k Hk). nra. }
assert (U : mu <= high).
{ replace high with (sum (fun k => high * w k) l) by (rewrite sum_scale, H1; ring). apply sum_le.
  intros k Hk. specialize (Hw k Hk). specialize (Hv k Hk). nra. }
apply Rle_trans with (2 * (mu - low) * (high - mu) / (high - low)).
2: { apply Rdiv_le_of; [lra |]. assert (0 <= (2 * mu - low - high) ^ 2) by apply pow2_ge_0. nra. }
apply Rle_trans with (sum (fun k => w k * (((v k - low) * (high - mu) + (high - v k) * (mu - low)) / (high - low))) l).
- apply sum_le. intros k Hk. apply Rmult_le_compat_l; [auto |]. specialize (Hv k Hk).
  apply Rmult_le_reg_r with (high - low); [lra |].
  replace (((v k - low) * (high - mu) + (high - v k) * (mu - low)) / (high - low) * (high - low))
    with ((v k - low) * (high - mu) + (high - v k) * (mu - low)) by (field; lra).
  unfold Rabs. destruct (Rcase_abs (v k - mu)); nra.
- right. transitivity (sum (fun k => / (high - low) * ((high + low - 2 * mu) * (w k * v k)
                                       + (mu * high + mu * low - 2 * (low * high)) * w k)) l).
  + apply sum_ext. intros. field. lra.
  + rewrite sum_scale, sum_plus, !sum_scale, H1. fold mu. field. lra.
Qed.
