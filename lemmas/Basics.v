(** Sums over finite families, weighed means, the ReLU: what the other files speak about. *)

From Coq Require Import Reals List Lra Lia.
Import ListNotations.
Open Scope R_scope.

Definition relu (z : R) : R := Rmax z 0.

Lemma relu_pos z : 0 <= z -> relu z = z.
Proof. intros. unfold relu. apply Rmax_left. lra. Qed.

Lemma relu_neg z : z <= 0 -> relu z = 0.
Proof. intros. unfold relu. apply Rmax_right. lra. Qed.

Lemma exp_mono x y : x <= y -> exp x <= exp y.
Proof. intros [H | ->]; [left; now apply exp_increasing | right; reflexivity]. Qed.

Lemma exp_ge_linear x : 1 + x <= exp x.
Proof. destruct (Req_dec x 0) as [-> | H]; [rewrite exp_0; lra | left; now apply exp_ineq1]. Qed.

Lemma ln_mono x y : 0 < x -> x <= y -> ln x <= ln y.
Proof. intros P [H | ->]; [left; now apply ln_increasing | right; reflexivity]. Qed.

Lemma Rabs_le_iff x y : Rabs x <= y -> - y <= x <= y.
Proof. intros H. split; [pose proof (Rle_abs (- x)); rewrite Rabs_Ropp in * | pose proof (Rle_abs x)]; lra. Qed.

Lemma Rdiv_le_of a b c : 0 < b -> a <= c * b -> a / b <= c.
Proof. intros Hb H. apply Rmult_le_reg_r with b; [lra | unfold Rdiv; rewrite Rmult_assoc, Rinv_l; lra]. Qed.

Section Families.

Context {A : Type}.
Implicit Types (f g : A -> R) (l : list A).

Definition sum f l : R := fold_right (fun a s => f a + s) 0 l.

Lemma sum_ext f g l : (forall a, In a l -> f a = g a) -> sum f l = sum g l.
Proof. induction l as [| a l IH]; simpl; intros H; [reflexivity | rewrite H, IH; auto]. Qed.

Lemma sum_le f g l : (forall a, In a l -> f a <= g a) -> sum f l <= sum g l.
Proof.
induction l as [| a l IH]; simpl; intros H; [lra |].
assert (f a <= g a) by auto. assert (sum f l <= sum g l) by auto. lra.
Qed.

Lemma sum_plus f g l : sum (fun a => f a + g a) l = sum f l + sum g l.
Proof. induction l as [| a l IH]; simpl; [lra | rewrite IH; lra]. Qed.

Lemma sum_minus f g l : sum (fun a => f a - g a) l = sum f l - sum g l.
Proof. induction l as [| a l IH]; simpl; [lra | rewrite IH; lra]. Qed.

Lemma sum_scale c f l : sum (fun a => c * f a) l = c * sum f l.
Proof. induction l as [| a l IH]; simpl; [lra | rewrite IH; lra]. Qed.

Lemma sum_scale_r c f l : sum (fun a => f a * c) l = sum f l * c.
Proof. induction l as [| a l IH]; simpl; [lra | rewrite IH; lra]. Qed.

Lemma sum_zero l : sum (fun _ => 0) l = 0.
Proof. induction l as [| a l IH]; simpl; [reflexivity | rewrite IH; lra]. Qed.

Lemma sum_const c l : sum (fun _ => c) l = INR (length l) * c.
Proof.
induction l as [| a l IH]; [simpl; lra |].
change (sum (fun _ => c) (a :: l)) with (c + sum (fun _ => c) l).
replace (length (a :: l)) with (S (length l)) by reflexivity. rewrite IH, S_INR. lra.
Qed.

Lemma sum_nonneg f l : (forall a, In a l -> 0 <= f a) -> 0 <= sum f l.
Proof. intros H. rewrite <- (sum_zero l). now apply sum_le. Qed.

Lemma sum_pos f l : l <> [] -> (forall a, In a l -> 0 < f a) -> 0 < sum f l.
Proof.
destruct l as [| a l]; [congruence |]. intros _ H. simpl.
assert (0 < f a) by (apply H; now left).
assert (0 <= sum f l) by (apply sum_nonneg; intros; left; apply H; now right). lra.
Qed.

Lemma sum_abs f l : Rabs (sum f l) <= sum (fun a => Rabs (f a)) l.
Proof.
induction l as [| a l IH]; simpl; [rewrite Rabs_R0; lra |].
eapply Rle_trans; [apply Rabs_triang | lra].
Qed.

Lemma sum_le_one f l a : (forall b, In b l -> 0 <= f b) -> In a l -> f a <= sum f l.
Proof.
induction l as [| b l IH]; simpl; [tauto |]; intros H [-> | Ha].
- assert (0 <= sum f l) by (apply sum_nonneg; auto). lra.
- assert (0 <= f b) by auto. assert (f a <= sum f l) by auto. lra.
Qed.

(** The mean of [v] with weights [w]: what a head returns. *)
Definition mean (w v : A -> R) l : R := sum (fun a => w a * v a) l / sum w l.

Lemma mean_le w v l most :
  l <> [] -> (forall a, In a l -> 0 < w a) -> (forall a, In a l -> v a <= most) -> mean w v l <= most.
Proof.
intros Hl Hw Hv. apply Rdiv_le_of; [now apply sum_pos |].
rewrite <- sum_scale. apply sum_le. intros a Ha. specialize (Hw a Ha). specialize (Hv a Ha). nra.
Qed.

Lemma mean_opp w v l : mean w (fun a => - v a) l = - mean w v l.
Proof.
unfold mean. replace (sum (fun a => w a * - v a) l) with (- sum (fun a => w a * v a) l); [unfold Rdiv; ring |].
rewrite <- (Rmult_1_l (sum _ l)), Ropp_mult_distr_l, <- sum_scale. apply sum_ext. intros. ring.
Qed.

End Families.
