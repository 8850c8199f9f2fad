(** Tables: rule 9 of docs/certificate.md, and enclosures by derivatives (7). *)

From Coq Require Import Reals List Lra Lia.
From Coquelicot Require Import Coquelicot.
From Interval Require Import Tactic.
From Headsmith Require Import Constants Basics Softmax.
Open Scope R_scope.

(** *** 9.3: the degrees n and more of e^b *)

Fixpoint taylor (n : nat) (b : R) : R := match n with O => 0 | S k => taylor k b + b ^ k / INR (fact k) end.

Lemma Derive_n_exp_line b n t : Derive_n (fun t => exp (t * b)) n t = b ^ n * exp (t * b).
Proof.
revert t. induction n as [| n IH]; intros t; simpl; [ring |].
rewrite (Derive_ext _ (fun t => b ^ n * exp (t * b))) by apply IH.
apply is_derive_unique. auto_derive; [trivial | ring].
Qed.

Lemma ex_derive_n_exp_line b n t : ex_derive_n (fun t => exp (t * b)) n t.
Proof.
destruct n as [| n]; simpl; [trivial |].
apply ex_derive_ext with (fun t => b ^ n * exp (t * b)); [intros; now rewrite Derive_n_exp_line |].
auto_derive. trivial.
Qed.

Lemma sum_taylor b n : sum_f_R0 (fun k => b ^ k / INR (fact k)) n = taylor (S n) b.
Proof. induction n as [| n IH]; [simpl; lra |]. simpl sum_f_R0. rewrite IH. reflexivity. Qed.

Theorem exponential_tail b B n :
  Rabs b <= B -> Rabs (exp b - taylor n b) <= B ^ n / INR (fact n) * exp B.
Proof.
intros Hb. assert (HB : 0 <= B) by (apply Rle_trans with (2 := Hb), Rabs_pos).
assert (U : exp b <= exp B) by (apply exp_mono; apply Rle_trans with (2 := Hb), Rle_abs).
destruct n as [| n].
- simpl. rewrite Rminus_0_r, Rabs_pos_eq by (left; apply exp_pos). lra.
- destruct (Taylor_Lagrange (fun t => exp (t * b)) n 0 1 Rlt_0_1) as (z & Hz & E).
  { intros t _ k _. apply ex_derive_n_exp_line. }
  rewrite Rmult_1_l in E. rewrite E, Derive_n_exp_line. rewrite Rminus_0_r, pow1.
  rewrite (sum_eq _ (fun k => b ^ k / INR (fact k))).
  2: { intros k _. rewrite Derive_n_exp_line, Rmult_0_l, exp_0, pow1. unfold Rdiv. ring. }
  rewrite sum_taylor.
  assert (F : 0 < INR (fact (S n))) by apply INR_fact_lt_0.
  replace (taylor (S n) b + 1 / INR (fact (S n)) * (b ^ S n * exp (z * b)) - taylor (S n) b)
    with (b ^ S n / INR (fact (S n)) * exp (z * b)) by (unfold Rdiv; ring).
  rewrite Rabs_mult. unfold Rdiv at 1. rewrite Rabs_mult, (Rabs_pos_eq (/ _)) by (left; now apply Rinv_0_lt_compat).
  apply Rmult_le_compat; [apply Rmult_le_pos; [apply Rabs_pos | left; now apply Rinv_0_lt_compat] | apply Rabs_pos | |].
  + apply Rmult_le_compat_r; [left; now apply Rinv_0_lt_compat |].
    rewrite <- RPow_abs. apply pow_incr. split; [apply Rabs_pos | exact Hb].
  + rewrite Rabs_pos_eq by (left; apply exp_pos). apply exp_mono.
    apply Rabs_le_iff in Hb. nra.
Qed.

(** a derivative of the terms of degree n is at most n times the sum of their sizes *)
Theorem degree_of_a_derivative n B : n <> 0%nat -> INR n * (B ^ n / INR (fact n)) = B * (B ^ (n - 1) / INR (fact (n - 1))).
Proof.
intros H. destruct n as [| n]; [lia |]. replace (S n - 1)%nat with n by lia.
rewrite fact_simpl, mult_INR. simpl pow. assert (0 < INR (fact n)) by apply INR_fact_lt_0.
assert (0 < INR (S n)) by (apply lt_0_INR; lia). field. lra.
Qed.

(** what silent terms of N and D do to N / D - G: the remainder of N - G D over D, D >= 1 *)
Theorem quotient_remainder N D G rest : 1 <= D -> Rabs (N - G * D) <= rest -> Rabs (N / D - G) <= rest.
Proof.
intros HD H. replace (N / D - G) with ((N - G * D) / D) by (field; lra).
unfold Rdiv. rewrite Rabs_mult, (Rabs_pos_eq (/ D)) by (left; apply Rinv_0_lt_compat; lra).
assert (/ D <= 1) by (rewrite <- Rinv_1; apply Rinv_le_contravar; lra).
assert (0 < / D) by (apply Rinv_0_lt_compat; lra). assert (0 <= Rabs (N - G * D)) by apply Rabs_pos. nra.
Qed.

(** D >= 1, by Jensen: scores are taken off their mean *)
Theorem jensen {A} (l : list A) (w c : A -> R) :
  sum w l = 1 -> (forall k, In k l -> 0 <= w k) -> sum (fun k => w k * c k) l = 0 ->
  1 <= sum (fun k => w k * exp (c k)) l.
Proof.
intros H1 Hw H0. replace 1 with (sum (fun k => w k + w k * c k) l) by (rewrite sum_plus, H1, H0; ring).
apply sum_le. intros k Hk. specialize (Hw k Hk). assert (E := exp_ge_linear (c k)). nra.
Qed.

(** *** 9.1: the slope of a softmax mean is a covariance, and values that rise with slopes make it rise (12.3, ramps) *)
Theorem rising_table {A} (l : list A) (w slope v : A -> R) :
  sum w l = 1 -> (forall k, In k l -> 0 <= w k) ->
  (forall j k, In j l -> In k l -> 0 <= (slope j - slope k) * (v j - v k)) ->
  0 <= sum (fun k => w k * slope k * v k) l - sum (fun k => w k * slope k) l * sum (fun k => w k * v k) l.
Proof.
intros H1 Hw H.
set (a := sum (fun k => w k * slope k) l). set (b := sum (fun k => w k * v k) l).
set (c := sum (fun k => w k * slope k * v k) l).
assert (E : sum (fun j => w j * sum (fun k => w k * ((slope j - slope k) * (v j - v k))) l) l = 2 * (c - a * b)).
{ transitivity (sum (fun j => w j * slope j * v j - b * (w j * slope j) - a * (w j * v j) + c * w j) l).
  - apply sum_ext. intros j _.
    assert (sum (fun k => w k * ((slope j - slope k) * (v j - v k))) l = slope j * v j - slope j * b - a * v j + c).
    { transitivity (sum (fun k => slope j * v j * w k - slope j * (w k * v k) - v j * (w k * slope k) + w k * slope k * v k) l).
      - apply sum_ext. intros. ring.
      - rewrite sum_plus, !sum_minus, !sum_scale, H1. fold a b c. ring. }
    rewrite H0. ring.
  - rewrite sum_plus, !sum_minus, !sum_scale, H1. fold a b c. ring. }
assert (0 <= sum (fun j => w j * sum (fun k => w k * ((slope j - slope k) * (v j - v k))) l) l); [| lra].
apply sum_nonneg. intros j Hj. apply Rmult_le_pos; [auto |].
apply sum_nonneg. intros k Hk. apply Rmult_le_pos; auto.
Qed.

(** *** 7: what is known of all values *)

(** The slope of erf, 2 / sqrt pi e^(-x^2), is in [0, ERF_SLOPE]; *)
Theorem erf_slope x : 0 <= 2 / sqrt PI * exp (- (x * x)) <= ERF_SLOPE.
Proof.
assert (E : exp (- (x * x)) <= 1) by (rewrite <- exp_0; apply exp_mono; assert (0 <= x * x) by nra; lra).
assert (P := exp_pos (- (x * x))). assert (Q : 0 < 2 / sqrt PI <= ERF_SLOPE) by (unfold ERF_SLOPE; split; interval).
split; nra.
Qed.

(** that of a sigmoid in [0, 1/4], and so on a chord (sigmoid_lipschitz). *)

(** A mean value form: where |f'| is in [low, high] between m and x, f(x) is in f(m) + [low, high] (x - m). *)
Theorem mean_value f f' m x low high :
  (forall t, Rmin m x <= t <= Rmax m x -> is_derive f t (f' t)) ->
  (forall t, Rmin m x <= t <= Rmax m x -> low <= f' t <= high) ->
  exists c, low <= c <= high /\ f x = f m + c * (x - m).
Proof.
intros Hd Hb. destruct (MVT_gen f m x f') as (t & Ht & E).
- intros t Ht. apply Hd. lra.
- intros t Ht. apply continuity_pt_filterlim.
  apply (ex_derive_continuous (K := R_AbsRing) (V := R_NormedModule)). exists (f' t). now apply Hd.
- exists (f' t). split; [now apply Hb | lra].
Qed.
