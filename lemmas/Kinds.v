(** Heads of other kinds: rules 12.4 to 12.8, 12.10 and 14.2 of docs/certificate.md. *)

From Coq Require Import Reals List Lra Lia Bool.
From Coquelicot Require Import Coquelicot.
From Interval Require Import Tactic.
From Headsmith Require Import Constants Basics Softmax.
Import ListNotations.
Open Scope R_scope.

(** *** 12.4: what a gate head holds *)

(** The weight of the token itself, whose score and those of the grid are off by at most d, is at most e^(2d) of what it
    is without that. *)
Theorem held_weight {A} (l : list A) (s m : A -> R) slip d :
  Rabs slip <= d -> (forall k, In k l -> Rabs (m k) <= d) ->
  exp slip / (exp slip + sum (fun k => exp (s k + m k)) l) <= exp (2 * d) * (1 / (1 + sum (fun k => exp (s k)) l)).
Proof.
intros Hs Hm. apply Rabs_le_iff in Hs.
set (G := sum (fun k => exp (s k)) l). set (G' := sum (fun k => exp (s k + m k)) l).
assert (0 <= G) by (apply sum_nonneg; intros; left; apply exp_pos).
assert (0 <= G') by (apply sum_nonneg; intros; left; apply exp_pos).
assert (low : exp (- d) * G <= G').
{ unfold G, G'. rewrite <- sum_scale. apply sum_le. intros k Hk. specialize (Hm k Hk). apply Rabs_le_iff in Hm.
  rewrite <- exp_plus. apply exp_mono. lra. }
assert (P := exp_pos slip). apply Rdiv_le_of; [lra |].
replace (exp (2 * d) * (1 / (1 + G)) * (exp slip + G')) with (exp (2 * d) * (exp slip + G') / (1 + G)) by (field; lra).
apply Rmult_le_reg_r with (1 + G); [lra |].
replace (exp (2 * d) * (exp slip + G') / (1 + G) * (1 + G)) with (exp (2 * d) * (exp slip + G')) by (field; lra).
assert (exp slip <= exp d) by (apply exp_mono; lra).
assert (exp (2 * d) = exp d * exp d) by (rewrite <- exp_plus; f_equal; ring).
assert (exp d * exp (- d) = 1) by (rewrite <- exp_plus; replace (d + - d) with 0 by ring; apply exp_0).
assert (1 <= exp (2 * d)) by (pose proof (exp_ge_linear (2 * d)); lra).
assert (exp (2 * d) * (exp (- d) * G) <= exp (2 * d) * G') by (apply Rmult_le_compat_l; lra).
assert (exp (2 * d) * (exp (- d) * G) = exp d * G) by (rewrite H2; replace (exp d * exp d * (exp (- d) * G)) with (exp d * G * (exp d * exp (- d))) by ring; rewrite H3; ring).
assert (exp slip * G <= exp d * G) by (apply Rmult_le_compat_r; lra).
assert (exp slip <= exp (2 * d) * exp slip) by nra. lra.
Qed.

(** *** 12.6: a code scores bits - 2 h on another one *)

Definition sign (b : bool) : R := if b then -1 else 1.
Fixpoint code_score (a b : list bool) : R :=
  match a, b with x :: a, y :: b => sign x * sign y + code_score a b | _, _ => 0 end.
Fixpoint apart (a b : list bool) : nat :=
  match a, b with x :: a, y :: b => (if xorb x y then 1 else 0) + apart a b | _, _ => 0 end.

Theorem move_score a b : length a = length b -> code_score a b = INR (length a) - 2 * INR (apart a b).
Proof.
revert b. induction a as [| x a IH]; intros [| y b] H; simpl length in *; try discriminate; [simpl; lra |].
simpl code_score. simpl apart. rewrite IH by congruence. rewrite S_INR, plus_INR.
destruct x, y; simpl; lra.
Qed.

Theorem move_margin a b : length a = length b -> a <> b -> (1 <= apart a b)%nat.
Proof.
revert b. induction a as [| x a IH]; intros [| y b] H D; simpl in *; try discriminate; [congruence |].
destruct (xorb x y) eqn:E; [lia |]. apply xorb_eq in E. subst.
assert (1 <= apart a b)%nat by (apply IH; congruence). lia.
Qed.

(** *** 12.8: sparsemax, for every number of tokens *)

(** p_1 is the largest weight, s_1 - s_j = p_1 - p_j where p_j > 0: what is lost is the sum of p_j (p_1 - p_j). *)
Theorem sparsemax_loss {A} (others : list A) (p : A -> R) p1 :
  others <> [] -> p1 + sum p others = 1 ->
  sum (fun j => p j * (p1 - p j)) others <= INR (length others) / (4 * (INR (length others) + 1)).
Proof.
intros Hn H1. set (n := INR (length others)).
assert (N : 1 <= n).
{ unfold n. destruct others; [congruence |]. simpl length. rewrite S_INR. pose proof (pos_INR (length others)). lra. }
set (S := sum p others). set (Q := sum (fun j => p j * p j) others).
assert (E : sum (fun j => p j * (p1 - p j)) others = p1 * S - Q).
{ transitivity (sum (fun j => p1 * p j - p j * p j) others); [apply sum_ext; intros; ring |].
  rewrite sum_minus, sum_scale. reflexivity. }
assert (C : S * S <= n * Q).
{ assert (0 <= sum (fun j => (n * p j - S) * (n * p j - S)) others) by (apply sum_nonneg; intros; exact (Rle_0_sqr _)).
  assert (F : sum (fun j => (n * p j - S) * (n * p j - S)) others = n * (n * Q - S * S)).
  { transitivity (sum (fun j => (n * n) * (p j * p j) - (2 * n * S) * p j + S * S) others); [apply sum_ext; intros; ring |].
    rewrite sum_plus, sum_minus, !sum_scale, sum_const. fold n S Q. ring. }
  rewrite F in H. nra. }
rewrite E. apply Rmult_le_reg_r with (4 * (n + 1)); [lra |].
replace (n / (4 * (n + 1)) * (4 * (n + 1))) with n by (field; lra).
replace p1 with (1 - S) by (unfold S; lra).
(* 4 (n + 1) ((1 - S) S - Q) <= 4 (n + 1) (S - S^2 (1 + 1/n)) = n - (2 (n + 1) S - n)^2 / n *)
apply Rmult_le_reg_r with n; [lra |].
assert (4 * (n + 1) * (S * S) <= 4 * (n + 1) * (n * Q)) by (apply Rmult_le_compat_l; lra).
assert (0 <= (2 * (n + 1) * S - n) ^ 2) by apply pow2_ge_0. lra.
Qed.

(** n scores that are lower by 1/2 attain it. *)
Theorem sparsemax_loss_attained n :
  0 < n -> let p := 1 / (2 * (n + 1)) in let p1 := p + 1 / 2 in
  p1 + n * p = 1 /\ n * (p * (p1 - p)) = n / (4 * (n + 1)).
Proof. intros Hn p p1. unfold p1, p. split; field; lra. Qed.

(** *** 12.8: elu+1 *)

Lemma elu_bound y : 0 <= y -> y <= ELU * (1 + (1 + y) * exp y).
Proof.
intros Hy.
assert (T : 2.2255 * (y + 0.2) <= exp y).
{ assert (E : 1 + (y - 0.8) <= exp (y - 0.8)) by apply exp_ge_linear.
  replace (exp y) with (exp (y - 0.8) * exp 0.8) by (rewrite <- exp_plus; f_equal; ring).
  assert (2.2255 <= exp 0.8) by interval. nra. }
unfold ELU. assert (0 <= (1 + y) * (exp y - 2.2255 * (y + 0.2))) by (apply Rmult_le_pos; lra).
assert (0 <= (y - 0.8) * (y - 0.8)) by apply Rle_0_sqr. nra.
Qed.

(** y = b |z|: a gate of elu+1 attention is below the ReLU by |z| / (1 + (1 + y) e^y). *)
Theorem elu_gate b z : 0 < b -> 0 <= Rabs z / (1 + (1 + b * Rabs z) * exp (b * Rabs z)) <= ELU / b.
Proof.
intros Hb. assert (Z : 0 <= Rabs z) by apply Rabs_pos. set (y := b * Rabs z).
assert (Y : 0 <= y) by (unfold y; nra). assert (E := exp_pos y).
assert (P : 0 < 1 + (1 + y) * exp y) by nra.
split; [apply Rmult_le_pos; [exact Z | left; now apply Rinv_0_lt_compat] |].
apply Rdiv_le_of; [exact P |]. apply Rmult_le_reg_l with b; [exact Hb |].
replace (b * (ELU / b * (1 + (1 + y) * exp y))) with (ELU * (1 + (1 + y) * exp y)) by (field; lra).
now apply elu_bound.
Qed.

(** The finite gain C moves a weight by at most g = e^-C; *)
Theorem elu_gain a c g : 0 < a -> 0 < c -> 0 <= g -> Rabs ((a + c * g) / ((a + c) * (1 + g)) - a / (a + c)) <= g.
Proof.
intros Ha Hc Hg.
replace ((a + c * g) / ((a + c) * (1 + g)) - a / (a + c)) with (g * (c - a) / ((a + c) * (1 + g))) by (field; lra).
assert (P : 0 < (a + c) * (1 + g)) by nra.
unfold Rdiv. rewrite Rabs_mult, (Rabs_pos_eq (/ _)) by (left; now apply Rinv_0_lt_compat).
apply Rdiv_le_of; [exact P |]. rewrite Rabs_mult, (Rabs_pos_eq g) by lra.
apply Rmult_le_compat_l; [lra |]. apply Rabs_le. nra.
Qed.

(** and by at most ELU_GAIN times that where it is computed as e^(m - C), |m| <= 9 / 10000. *)
Theorem elu_gain_computed m : Rabs m <= 9 / 10000 -> exp m <= ELU_GAIN.
Proof. intros H. apply Rabs_le_iff in H. unfold ELU_GAIN. interval. Qed.

(** *** 12.8: sigmoid *)

(** no sigmoid is steeper than one (nor than a quarter) *)
Theorem sigmoid_lipschitz x y : x <= y -> 0 <= 1 / (1 + exp (- y)) - 1 / (1 + exp (- x)) <= (y - x) / 4.
Proof.
intros H. destruct H as [H | ->]; [| lra].
set (f t := 1 / (1 + exp (- t))). set (f' t := exp (- t) / (1 + exp (- t)) ^ 2).
destruct (MVT_cor2 f f' x y H) as (c & E & _).
{ intros c _. apply is_derive_Reals. unfold f, f'. assert (0 < exp (- c)) by apply exp_pos. auto_derive; [lra | field; lra]. }
fold (f y). fold (f x). rewrite E. assert (P : 0 < exp (- c)) by apply exp_pos.
assert (0 <= f' c <= / 4).
{ unfold f'. split; [apply Rmult_le_pos; [lra | left; apply Rinv_0_lt_compat, pow_lt; lra] |].
  apply Rdiv_le_of; [apply pow_lt; lra |]. assert (0 <= (1 - exp (- c)) ^ 2) by apply pow2_ge_0. lra. }
split; nra.
Qed.

(** a weight is within e^-s of one, or e^s of zero *)
Theorem sigmoid_away s : 0 <= 1 / (1 + exp (- s)) <= exp s /\ 0 <= 1 - 1 / (1 + exp (- s)) <= exp (- s).
Proof.
assert (P := exp_pos s). assert (Q := exp_pos (- s)).
assert (E : exp s * exp (- s) = 1) by (rewrite <- exp_plus; replace (s + - s) with 0 by ring; apply exp_0).
repeat split.
- apply Rmult_le_pos; [lra | left; apply Rinv_0_lt_compat; lra].
- apply Rdiv_le_of; [lra |]. nra.
- apply Rle_trans with (exp (- s) / (1 + exp (- s))); [| right; field; lra].
  apply Rmult_le_pos; [lra | left; apply Rinv_0_lt_compat; lra].
- apply Rle_trans with (exp (- s) / (1 + exp (- s))); [right; field; lra |]. apply Rdiv_le_of; [lra |]. nra.
Qed.

(** T of them weigh t, and their sum is off by 1.6 t more (few_sums), and by gamma_T of that, 1/8 at most. *)
Theorem silent_sigmoids t : 0 <= t -> t + 8 / 5 * t + / 8 * (t + 8 / 5 * t) <= SIGMOIDS * t.
Proof. intros. unfold SIGMOIDS. lra. Qed.

(** *** 12.10: silu *)

Lemma silu_slope_bounds t : let E := exp (- t) in -1 / 10 <= (1 + E + t * E) / (1 + E) ^ 2 <= 11 / 10.
Proof.
(* 0.1 e^x + 1.2 + 1.1 e^-x - x >= 0, from e^x >= 11 (1 + x - log 11) and the smallest value at e^x = 11 *)
assert (main : forall x, 0 <= 1 / 10 * exp x + 12 / 10 + 11 / 10 * exp (- x) - x).
{ intros x. set (L := ln 11).
  assert (HL : exp L = 11) by (apply exp_ln; lra).
  assert (A : exp x = exp (x - L) * 11) by (rewrite <- HL, <- exp_plus; f_equal; ring).
  assert (B : exp (- x) = exp (- (x - L)) / 11).
  { replace 11 with (exp L). unfold Rdiv. rewrite <- exp_Ropp, <- exp_plus. f_equal. ring. }
  assert (C := exp_ge_linear (x - L)). assert (D := exp_ge_linear (- (x - L))).
  assert (N : L <= 24 / 10) by (unfold L; interval). rewrite A, B. lra. }
intros E. assert (P : 0 < E) by apply exp_pos.
assert (EE : exp t * E = 1) by (unfold E; rewrite <- exp_plus; replace (t + - t) with 0 by ring; apply exp_0).
assert (Q : 0 < (1 + E) ^ 2) by (apply pow_lt; lra).
split.
- apply Rmult_le_reg_r with ((1 + E) ^ 2); [exact Q |].
  replace ((1 + E + t * E) / (1 + E) ^ 2 * (1 + E) ^ 2) with (1 + E + t * E) by (field; lra).
  assert (M := main (- t)). rewrite Ropp_involutive in M. fold E in M.
  assert (0 <= E * (1 / 10 * E + 12 / 10 + 11 / 10 * exp t - - t)) by (apply Rmult_le_pos; lra). nra.
- apply Rdiv_le_of; [exact Q |]. assert (M := main t). fold E in M.
  assert (0 <= E * (1 / 10 * exp t + 12 / 10 + 11 / 10 * E - t)) by (apply Rmult_le_pos; lra). nra.
Qed.

(** silu (t) = t / (1 + e^-t) has slopes in [-0.1, 1.1]. *)
Theorem silu_slope x y : x < y -> -1 / 10 <= (y / (1 + exp (- y)) - x / (1 + exp (- x))) / (y - x) <= 11 / 10.
Proof.
intros H. set (f t := t / (1 + exp (- t))). set (f' t := (1 + exp (- t) + t * exp (- t)) / (1 + exp (- t)) ^ 2).
destruct (MVT_cor2 f f' x y H) as (c & E & _).
{ intros c _. apply is_derive_Reals. unfold f, f'. assert (0 < exp (- c)) by apply exp_pos. auto_derive; [lra | field; lra]. }
fold (f y). fold (f x). rewrite E. replace (f' c * (y - x) / (y - x)) with (f' c) by (field; lra). apply silu_slope_bounds.
Qed.

(** S(t) = silu t and T(t) = - silu (- t) add up to t, have its sign, and |S| + |T| = |t|. *)
Theorem silu_halves t :
  let S := t / (1 + exp (- t)) in let T := - (- t / (1 + exp t)) in
  S + T = t /\ Rabs S + Rabs T = Rabs t.
Proof.
intros S T. assert (P := exp_pos (- t)). assert (Q := exp_pos t).
assert (E : exp t * exp (- t) = 1) by (rewrite <- exp_plus; replace (t + - t) with 0 by ring; apply exp_0).
assert (HS : S = t * / (1 + exp (- t))) by reflexivity.
assert (HT : T = t * / (1 + exp t)) by (unfold T; field; lra).
assert (A : S + T = t).
{ rewrite HS, HT. replace (exp (- t)) with (/ exp t).
  - field. lra.
  - apply Rmult_eq_reg_l with (exp t); [rewrite Rinv_r; lra | lra]. }
split; [exact A |].
assert (0 < / (1 + exp (- t))) by (apply Rinv_0_lt_compat; lra).
assert (0 < / (1 + exp t)) by (apply Rinv_0_lt_compat; lra).
destruct (Rle_dec 0 t).
- rewrite !Rabs_pos_eq; try lra; [rewrite HT | rewrite HS]; apply Rmult_le_pos; lra.
- rewrite !Rabs_left; try lra; [rewrite HT | rewrite HS]; nra.
Qed.

(** A neuron z silu-like: z s(b z) is the gate of a sink. Its constant is SINK again (sink_constant). *)

(** *** 14.2: Newton's iteration *)

(** Bernoulli: 1 - m z <= (1 - z)^m for z in [0, 2] and even m *)
Theorem bernoulli z m : 0 <= z <= 2 -> 1 - INR (2 * m) * z <= (1 - z) ^ (2 * m) <= 1.
Proof.
intros Hz. rewrite pow_mult. set (q := (1 - z) ^ 2).
assert (F : q = 1 - 2 * z + z * z) by (unfold q; ring).
assert (Q : 0 <= q <= 1) by (split; [apply pow2_ge_0 | rewrite F; nra]).
assert (QL : 1 - 2 * z <= q) by (rewrite F; nra). clearbody q.
split.
- induction m as [| m IH]; [simpl; lra |].
  replace (2 * S m)%nat with (S (S (2 * m))) by lia. rewrite !S_INR. simpl pow.
  assert (K : 0 <= INR (2 * m)) by apply pos_INR.
  assert (0 <= q ^ m <= 1) by (split; [apply pow_le; lra | rewrite <- (pow1 m); apply pow_incr; lra]).
  destruct (Rle_dec 0 (1 - INR (2 * m) * z)) as [N | N].
  + apply Rle_trans with (q * (1 - INR (2 * m) * z)); [| apply Rmult_le_compat_l; lra].
    rewrite F.
    assert (0 <= z * z * (1 - INR (2 * m) * z) + 2 * z * z * INR (2 * m)); [| nra].
    assert (0 <= z * z) by nra. apply Rplus_le_le_0_compat; [apply Rmult_le_pos; lra | apply Rmult_le_pos; [nra | exact K]].
  + apply Rle_trans with 0; [nra | apply Rmult_le_pos; lra].
- rewrite <- (pow1 m). apply pow_incr. lra.
Qed.

(** s / (s^2 + decay) <= 1 / (2 sqrt decay) *)
Theorem ridge_length s decay : 0 <= s -> 0 < decay -> s / (s * s + decay) <= 1 / (2 * sqrt decay).
Proof.
intros Hs Hd. assert (Q := sqrt_lt_R0 _ Hd). assert (E := sqrt_sqrt decay (Rlt_le _ _ Hd)).
apply Rdiv_le_of; [nra |]. apply Rmult_le_reg_r with (2 * sqrt decay); [lra |].
replace (1 / (2 * sqrt decay) * (s * s + decay) * (2 * sqrt decay)) with (s * s + decay) by (field; lra).
assert (0 <= (s - sqrt decay) ^ 2) by apply pow2_ge_0. nra.
Qed.
