(** A softmax of constant tokens in floating point: 12.1 of docs/certificate.md, in binary64 as Flocq knows it.

    Scores and values are numbers of the format. The run subtracts the largest score, takes exp of each difference, adds up
    powers and their products with values, each in an order of its own, and divides. Every operation rounds to nearest, with
    any rule for ties. The one hypothesis is that exp is within 4 units in the last place. *)

From Coq Require Import Reals List Lra Lia Permutation ZArith.
From Flocq Require Import Core Relative Plus_error.
From Interval Require Import Tactic.
From Headsmith Require Import Constants Basics Rounding Softmax.
Import ListNotations.
Open Scope R_scope.

Notation emin := (-1074)%Z.
Notation prec := 53%Z.
Notation format := (generic_format radix2 (FLT_exp emin prec)).
Notation ulp64 := (ulp radix2 (FLT_exp emin prec)).

#[local] Instance precision : Prec_gt_0 prec := eq_refl.

(** The unit roundoff, 2^-53. *)
Definition u : R := / 2 * bpow radix2 (- prec + 1).

Lemma u_is : u = / 2 ^ 53.
Proof. unfold u. simpl. lra. Qed.

Lemma u_small : 0 < u <= / 2 ^ 24.
Proof. rewrite u_is. split; [apply Rinv_0_lt_compat, pow_lt; lra | interval]. Qed.

Lemma sum_app {A} (f : A -> R) l l' : sum f (l ++ l') = sum f l + sum f l'.
Proof. induction l as [| a l IH]; simpl; [lra | rewrite IH; lra]. Qed.

Lemma sum_perm {A} (f : A -> R) l l' : Permutation l l' -> sum f l = sum f l'.
Proof. induction 1; simpl; lra. Qed.

Section Run.

Context (ties : Z -> bool).
Notation rnd := (round radix2 (FLT_exp emin prec) (Znearest ties)).

Lemma format_rnd x : format (rnd x).
Proof. apply generic_format_round; typeclasses eauto. Qed.

(** Additions are off by a factor, even where they underflow. *)
Lemma rnd_sum x y : format x -> format y -> exists d, Rabs d <= u /\ rnd (x + y) = (x + y) * (1 + d).
Proof.
intros Fx Fy. destruct (FLT_plus_error_N_ex radix2 emin prec ties x y Fx Fy) as (d & Hd & E).
exists d. split; [| exact E]. apply Rle_trans with (1 := Hd). unfold u_ro. fold u.
assert (U := u_small). apply Rdiv_le_of; [lra |]. nra.
Qed.

Context {A : Type}.

(** An order of summation of tokens. *)
Inductive shape : Type :=
  | One (a : A)
  | Both (left right : shape).

Fixpoint tokens o : list A := match o with One a => [a] | Both l r => tokens l ++ tokens r end.
Fixpoint run (f : A -> R) o : R := match o with One a => f a | Both l r => rnd (run f l + run f r) end.

Lemma run_format f o : (forall a, In a (tokens o) -> format (f a)) -> format (run f o).
Proof. destruct o; simpl; intros H; [apply H; now left | apply format_rnd]. Qed.

Lemma run_as_tree f g c o :
  (forall a, In a (tokens o) -> format (f a)) ->
  (forall a, In a (tokens o) -> Rabs (f a - g a) <= ((1 + u) ^ c - 1) * Rabs (g a)) ->
  exists t, computed t = run f o /\ exact t = sum g (tokens o) /\ size t = sum (fun a => Rabs (g a)) (tokens o)
            /\ leaves t = length (tokens o) /\ rounded u c t.
Proof.
induction o as [a | l IHl r IHr]; simpl; intros F H.
- exists (Leaf (g a) (f a - g a)). simpl. repeat split; try lra. apply H. now left.
- destruct IHl as (tl & C1 & E1 & S1 & L1 & R1); [intros; apply F; apply in_or_app; now left
    | intros; apply H; apply in_or_app; now left |].
  destruct IHr as (tr & C2 & E2 & S2 & L2 & R2); [intros; apply F; apply in_or_app; now right
    | intros; apply H; apply in_or_app; now right |].
  destruct (rnd_sum (run f l) (run f r)) as (d & Hd & E).
  { apply run_format. intros; apply F, in_or_app; now left. }
  { apply run_format. intros; apply F, in_or_app; now right. }
  exists (Node d tl tr). simpl. rewrite C1, C2, E1, E2, S1, S2, L1, L2, !sum_app, app_length.
  repeat split; try reflexivity; try assumption. now rewrite E.
Qed.

(** What a sum in any order of tokens is off by. *)
Lemma run_close f g c o :
  (forall a, In a (tokens o) -> format (f a)) ->
  (forall a, In a (tokens o) -> Rabs (f a - g a) <= ((1 + u) ^ c - 1) * Rabs (g a)) ->
  Rabs (run f o - sum g (tokens o))
  <= ((1 + u) ^ (c + (length (tokens o) - 1)) - 1) * sum (fun a => Rabs (g a)) (tokens o).
Proof.
intros F H. destruct (run_as_tree f g c o F H) as (t & C & E & S & L & R).
rewrite <- C, <- E, <- S, <- L. apply sums_in_any_order_pow; [pose proof u_small; lra | exact R].
Qed.

Context (power : R -> R) (s v : A -> R) (top spread low high V : R) (down up : shape).
Notation l := (tokens down).

(** exp is within 4 units in the last place, and returns numbers of the format. *)
Hypothesis exp_is_good :
  forall d, -708 <= d <= 0 -> format (power d) /\ Rabs (power d - exp d) <= 4 * ulp64 (exp d).

Hypothesis scores : forall a, In a l -> format (s a) /\ top - spread <= s a <= top.
Hypothesis largest : format top.
Hypothesis values : forall a, In a l -> format (v a) /\ low <= v a <= high /\ Rabs (v a) <= V.
(** both sums are about the same tokens, *)
Hypothesis alike : Permutation (tokens up) l.
(** scores do not lie so far apart that powers underflow, *)
Hypothesis near : spread <= 700.

Let d a := rnd (s a + - top).
Let e a := power (d a).
Let p a := rnd (e a * v a).

(** nor do products. *)
Hypothesis no_underflow : forall a, In a l -> v a = 0 \/ bpow radix2 (-1022) <= Rabs (e a * v a).

Definition result : R := rnd (run p up / run e down).

Lemma difference a : In a l -> exists m, Rabs m <= u * spread /\ d a = s a - top + m /\ -708 <= d a <= 0.
Proof.
intros Ha. destruct (scores a Ha) as [Fs Hs].
destruct (rnd_sum (s a) (- top) Fs) as (x & Hx & E); [now apply generic_format_opp |].
assert (U := u_small). apply Rabs_le_iff in Hx.
exists ((s a - top) * x). fold (d a) in E. split; [| split].
- rewrite Rabs_mult, (Rabs_left1 (s a - top)) by lra. rewrite Rmult_comm.
  apply Rmult_le_compat; try apply Rabs_pos; try lra. apply Rabs_le. lra.
- rewrite E. ring.
- rewrite E. assert (/ 2 ^ 24 <= / 100) by interval. split; nra.
Qed.

Lemma power_of a :
  In a l -> exists m, Rabs m <= EXP_FACTOR * 4 * u + u * spread /\ e a = exp (- top) * (exp (s a) * exp (m)) /\ format (e a).
Proof.
intros Ha. destruct (difference a Ha) as (m & Hm & E & R). destruct (exp_is_good (d a) R) as [F X].
assert (N : bpow radix2 (emin + prec - 1) <= Rabs (exp (d a))).
{ rewrite Rabs_pos_eq by (left; apply exp_pos). apply Rle_trans with (exp (-708)); [| apply exp_mono; lra].
  rewrite bpow_exp. apply exp_mono. simpl. interval. }
assert (L := ulp_FLT_le radix2 emin prec (exp (d a)) N).
rewrite (Rabs_pos_eq (exp (d a))) in L by (left; apply exp_pos).
assert (P := exp_pos (d a)). assert (U := u_small).
assert (W : bpow radix2 (1 - prec) = 2 * u) by (unfold u; simpl; lra). rewrite W in L.
set (x := power (d a) / exp (d a) - 1).
assert (Ex : e a = exp (d a) * (1 + x)) by (unfold e, x; field; lra).
assert (Hx : Rabs x <= 8 * u).
{ replace x with ((power (d a) - exp (d a)) / exp (d a)) by (unfold x; field; lra).
  unfold Rdiv. rewrite Rabs_mult, (Rabs_pos_eq (/ _)) by (left; now apply Rinv_0_lt_compat).
  apply Rdiv_le_of; [exact P | lra]. }
assert (M := exp_as_change_of_argument u x ltac:(lra) Hx). assert (Q := Hx). apply Rabs_le_iff in Q.
assert (S : / 2 ^ 24 <= / 100) by interval.
exists (m + ln (1 + x)). split; [| split; [| exact F]].
- apply Rle_trans with (1 := Rabs_triang _ _). lra.
- rewrite Ex, E, (exp_plus m), exp_ln by lra. unfold Rminus. rewrite !exp_plus. ring.
Qed.

Lemma tokens_pos o : (1 <= length (tokens o))%nat.
Proof. induction o; simpl; [lia | rewrite app_length; lia]. Qed.

(** What is computed is within these bounds of the mean of v, weighed by e^s: the shift of a mean (12.1), the rounding of
    both sums and products, of the quotient, and half of the smallest number. *)
Theorem softmax_in_floats :
  let K := length l in
  let g := gamma u K in
  INR K * u < 1 -> g < 1 ->
  Rabs (result - mean (fun a => exp (s a)) v l)
  <= (high - low) * half_tanh (EXP_FACTOR * 4 * u + u * spread)
     + (1 + u) * (2 * g / (1 - g)) * V + u * V + / 2 * bpow radix2 emin.
Proof.
intros K g HK Hg. assert (U := u_small).
assert (some : l <> []) by (intros Z; assert (L := tokens_pos down); rewrite Z in L; simpl in L; lia).
assert (K1 : (1 <= K)%nat) by apply tokens_pos.
assert (G : (1 + u) ^ K - 1 <= g) by (apply roundings; lra).
assert (G1 : (1 + u) ^ (K - 1) - 1 <= g).
{ assert ((1 + u) ^ (K - 1) <= (1 + u) ^ K) by (apply pow_le_more; [lra | lia]). lra. }
assert (G0 : 0 <= g).
{ assert (1 <= (1 + u) ^ K) by (apply pow_R1_Rle; lra). lra. }
set (dd := EXP_FACTOR * 4 * u + u * spread).
set (w := fun a => exp (s a)). set (m := fun a => ln (e a * exp (top - s a))).
assert (B : forall a, In a l -> Rabs (m a) <= dd /\ e a = exp (- top) * (w a * exp (m a)) /\ format (e a) /\ 0 < e a).
{ intros a Ha. destruct (power_of a Ha) as (x & Hx & E & F).
  assert (M : e a * exp (top - s a) = exp x).
  { rewrite E, <- !exp_plus. f_equal. ring. }
  unfold m. rewrite M, ln_exp. split; [exact Hx |]. split; [exact E |]. split; [exact F |].
  rewrite E. repeat apply Rmult_lt_0_compat; apply exp_pos. }
set (D := sum e l). set (N := sum (fun a => e a * v a) l).
assert (PD : 0 < D) by (apply sum_pos; [exact some | intros a Ha; now destruct (B a Ha) as (_ & _ & _ & ?)]).
assert (mean_e : mean (fun a => w a * exp (m a)) v l = N / D).
{ unfold mean, N, D.
  rewrite (sum_ext (fun a => e a * v a) (fun a => exp (- top) * (w a * exp (m a) * v a))).
  2: { intros a Ha. destruct (B a Ha) as (_ & E & _). rewrite E. ring. }
  rewrite (sum_ext e (fun a => exp (- top) * (w a * exp (m a)))).
  2: { intros a Ha. now destruct (B a Ha) as (_ & E & _). }
  rewrite !sum_scale.
  assert (0 < sum (fun a => w a * exp (m a)) l).
  { apply sum_pos; [exact some |]. intros. apply Rmult_lt_0_compat; apply exp_pos. }
  assert (0 < exp (- top)) by apply exp_pos. field. lra. }
assert (shift : Rabs (N / D - mean w v l) <= (high - low) * half_tanh dd).
{ rewrite <- mean_e. apply moved_mean; auto.
  - intros. apply exp_pos.
  - intros a Ha. now destruct (values a Ha) as (_ & ? & _).
  - intros a Ha. now destruct (B a Ha). }
assert (V0 : 0 <= V).
{ destruct l as [| a r] eqn:E; [congruence |]. destruct (values a) as (_ & _ & H); [try rewrite E; now left |].
  apply Rle_trans with (2 := H), Rabs_pos. }
assert (sizes : sum (fun a => Rabs (e a * v a)) l <= V * D).
{ unfold D. rewrite <- sum_scale. apply sum_le. intros a Ha. destruct (B a Ha) as (_ & _ & _ & P).
  destruct (values a Ha) as (_ & _ & H). rewrite Rabs_mult, (Rabs_pos_eq (e a)), Rmult_comm by lra.
  apply Rmult_le_compat_r; lra. }
assert (CD : Rabs (run e down - D) <= g * D).
{ assert (H := run_close e e 0 down). rewrite Nat.add_0_l in H.
  apply Rle_trans with (((1 + u) ^ (K - 1) - 1) * sum (fun a => Rabs (e a)) l).
  - apply H; intros a Ha; [now destruct (B a Ha) as (_ & _ & ? & _) |]. rewrite Rminus_diag_eq, Rabs_R0 by reflexivity.
    simpl. rewrite Rminus_diag_eq by reflexivity. lra.
  - rewrite (sum_ext (fun a => Rabs (e a)) e); [apply Rmult_le_compat_r; unfold D in *; lra |].
    intros a Ha. destruct (B a Ha) as (_ & _ & _ & P). apply Rabs_pos_eq. lra. }
assert (CN : Rabs (run p up - N) <= g * (V * D)).
{ unfold N. rewrite <- (sum_perm _ _ _ alike).
  assert (LK : length (tokens up) = K) by (apply Permutation_length, alike).
  assert (H := run_close p (fun a => e a * v a) 1 up). rewrite LK in H. replace (1 + (K - 1))%nat with K in H by lia.
  apply Rle_trans with (((1 + u) ^ K - 1) * sum (fun a => Rabs (e a * v a)) (tokens up)).
  - apply H; intros a Ha; [apply format_rnd |].
    assert (Hl : In a l) by (apply (Permutation_in _ alike), Ha).
    rewrite pow_1. replace (1 + u - 1) with u by ring. unfold p.
    destruct (no_underflow a Hl) as [Z | Z].
    + rewrite Z, Rmult_0_r, round_0 by typeclasses eauto. rewrite Rminus_diag_eq, Rabs_R0 by reflexivity. lra.
    + apply relative_error_N_FLT; [reflexivity | exact Z].
  - rewrite (sum_perm _ _ _ alike). apply Rmult_le_compat; [| | exact G | exact sizes].
    + assert (1 <= (1 + u) ^ K) by (apply pow_R1_Rle; lra). lra.
    + apply sum_nonneg. intros. apply Rabs_pos. }
assert (HN : Rabs (N / D) <= V).
{ unfold Rdiv. rewrite Rabs_mult, (Rabs_pos_eq (/ D)) by (left; now apply Rinv_0_lt_compat).
  apply Rdiv_le_of; [exact PD |]. unfold N. apply Rle_trans with (1 := sum_abs _ _). exact sizes. }
set (q := run p up / run e down).
assert (CQ : Rabs (q - N / D) <= 2 * g / (1 - g) * V).
{ assert (Q := CD). apply Rabs_le_iff in Q. assert (PR : (1 - g) * D <= run e down) by lra.
  assert (P1 : 0 < (1 - g) * D) by (apply Rmult_lt_0_compat; lra).
  replace (q - N / D) with ((run p up - N - N / D * (run e down - D)) / run e down) by (unfold q; field; lra).
  unfold Rdiv at 1. rewrite Rabs_mult, (Rabs_pos_eq (/ run e down)) by (left; apply Rinv_0_lt_compat; lra).
  assert (T : Rabs (run p up - N - N / D * (run e down - D)) <= 2 * g * V * D).
  { unfold Rminus at 1. apply Rle_trans with (1 := Rabs_triang _ _). rewrite Rabs_Ropp, Rabs_mult.
    assert (Rabs (N / D) * Rabs (run e down - D) <= V * (g * D)) by (apply Rmult_le_compat; try apply Rabs_pos; lra). lra. }
  apply Rle_trans with (2 * g * V * D * / ((1 - g) * D)).
  - apply Rmult_le_compat; [apply Rabs_pos | left; apply Rinv_0_lt_compat; lra | exact T |].
    apply Rinv_le_contravar; lra.
  - right. field. lra. }
destruct (error_N_FLT radix2 emin prec eq_refl ties q) as (eps & eta & He & Ht & _ & E).
fold u in He. unfold result. fold q. rewrite E.
assert (Hq : Rabs q <= V + 2 * g / (1 - g) * V).
{ replace q with (N / D + (q - N / D)) by ring. apply Rle_trans with (1 := Rabs_triang _ _). lra. }
replace (q * (1 + eps) + eta - mean w v l) with ((N / D - mean w v l) + (q - N / D) + q * eps + eta) by ring.
assert (Hqe : Rabs (q * eps) <= (V + 2 * g / (1 - g) * V) * u).
{ rewrite Rabs_mult. apply Rmult_le_compat; try apply Rabs_pos; assumption. }
eapply Rle_trans; [apply Rabs_triang |].
eapply Rle_trans; [apply Rplus_le_compat_r, Rabs_triang |].
eapply Rle_trans; [apply Rplus_le_compat_r, Rplus_le_compat_r, Rabs_triang |].
lra.
Qed.

End Run.
