(** Rounding of sums in any order: section 3, 11 (Account) and 12.1 (few sums) of docs/certificate.md. *)

From Coq Require Import Reals List Lra Lia.
From Headsmith Require Import Constants Basics.
Open Scope R_scope.

(** gamma_k = k u / (1 - k u) *)
Definition gamma (u : R) (k : nat) : R := INR k * u / (1 - INR k * u).

(** k roundings, each a factor within 1 +- u, are off by less than gamma_k. *)
Lemma roundings u k : 0 <= u -> INR k * u < 1 -> (1 + u) ^ k - 1 <= gamma u k.
Proof.
intros Hu. induction k as [| k IH]; intros Hk.
- unfold gamma. simpl. lra.
- rewrite S_INR in Hk. assert (K : 0 <= INR k) by apply pos_INR.
  assert (IK : (1 + u) ^ k - 1 <= gamma u k) by (apply IH; nra).
  assert (P : 0 < 1 - INR k * u) by nra. assert (Q : 0 < 1 - (INR k + 1) * u) by lra.
  unfold gamma in *. rewrite S_INR.
  assert (I : (1 + u) ^ k * (1 - INR k * u) <= 1).
  { apply Rle_trans with ((1 + INR k * u / (1 - INR k * u)) * (1 - INR k * u)); [apply Rmult_le_compat_r; lra |].
    right. field. lra. }
  assert (0 < (1 + u) ^ k) by (apply pow_lt; lra).
  enough ((1 + u) ^ S k <= / (1 - (INR k + 1) * u)).
  { replace ((INR k + 1) * u / (1 - (INR k + 1) * u)) with (/ (1 - (INR k + 1) * u) - 1) by (field; lra). lra. }
  apply Rmult_le_reg_r with (1 - (INR k + 1) * u); [exact Q |]. rewrite Rinv_l by lra. simpl.
  apply Rle_trans with ((1 + u) ^ k * (1 - INR k * u)); [| exact I].
  replace ((1 + u) * (1 + u) ^ k * (1 - (INR k + 1) * u)) with ((1 + u) ^ k * ((1 + u) * (1 - (INR k + 1) * u))) by ring.
  apply Rmult_le_compat_l; [lra |]. nra.
Qed.

Lemma pow_le_more u a b : 0 <= u -> (a <= b)%nat -> (1 + u) ^ a <= (1 + u) ^ b.
Proof. intros. apply Rle_pow; [lra | assumption]. Qed.

(** An order of summation: a binary tree. A leaf is a number x of which the run has x + e; a node adds up what both sides
    return, and returns that times 1 + d. *)
Inductive tree : Type :=
  | Leaf (x e : R)
  | Node (d : R) (left right : tree).

Fixpoint leaves t : nat := match t with Leaf _ _ => 1 | Node _ l r => leaves l + leaves r end.
Fixpoint exact t : R := match t with Leaf x _ => x | Node _ l r => exact l + exact r end.
Fixpoint size t : R := match t with Leaf x _ => Rabs x | Node _ l r => size l + size r end.
Fixpoint computed t : R := match t with Leaf x e => x + e | Node d l r => (computed l + computed r) * (1 + d) end.
(** every number was rounded c times before, every sum is rounded once *)
Fixpoint rounded u c t : Prop :=
  match t with
  | Leaf x e => Rabs e <= ((1 + u) ^ c - 1) * Rabs x
  | Node d l r => Rabs d <= u /\ rounded u c l /\ rounded u c r
  end.

Lemma leaves_pos t : (1 <= leaves t)%nat.
Proof. induction t; simpl; lia. Qed.

Lemma size_exact t : Rabs (exact t) <= size t.
Proof. induction t; simpl; [lra |]. eapply Rle_trans; [apply Rabs_triang | lra]. Qed.

Lemma size_pos t : 0 <= size t.
Proof. induction t; simpl; [apply Rabs_pos | lra]. Qed.

Lemma sums_in_any_order_pow u c t :
  0 <= u -> rounded u c t -> Rabs (computed t - exact t) <= ((1 + u) ^ (c + (leaves t - 1)) - 1) * size t.
Proof.
intros Hu. induction t as [x e | d l IHl r IHr]; simpl.
- intros H. replace (c + 0)%nat with c by lia. now replace (x + e - x) with e by ring.
- intros (Hd & Hl & Hr). specialize (IHl Hl). specialize (IHr Hr).
  assert (Ll := leaves_pos l). assert (Lr := leaves_pos r).
  assert (SL := size_exact l). assert (SR := size_exact r). assert (PL := size_pos l). assert (PR := size_pos r).
  set (a := (c + (leaves l - 1))%nat) in *. set (b := (c + (leaves r - 1))%nat) in *.
  set (k := (c + (leaves l + leaves r - 1))%nat).
  assert (A : (1 + u) ^ a * (1 + u) <= (1 + u) ^ k).
  { rewrite Rmult_comm, tech_pow_Rmult. apply pow_le_more; [exact Hu | unfold a, k; lia]. }
  assert (B : (1 + u) ^ b * (1 + u) <= (1 + u) ^ k).
  { rewrite Rmult_comm, tech_pow_Rmult. apply pow_le_more; [exact Hu | unfold b, k; lia]. }
  replace ((computed l + computed r) * (1 + d) - (exact l + exact r))
    with ((computed l - exact l) * (1 + d) + (computed r - exact r) * (1 + d) + (exact l + exact r) * d) by ring.
  assert (D : Rabs (1 + d) <= 1 + u).
  { apply Rle_trans with (1 := Rabs_triang _ _). rewrite Rabs_R1. lra. }
  assert (forall x y, Rabs x <= y -> Rabs (x * (1 + d)) <= y * (1 + u)).
  { intros x y H. rewrite Rabs_mult. apply Rmult_le_compat; try apply Rabs_pos; assumption. }
  assert (H1 := H _ _ IHl). assert (H2 := H _ _ IHr).
  assert (H3 : Rabs ((exact l + exact r) * d) <= (size l + size r) * u).
  { rewrite Rabs_mult. apply Rmult_le_compat; try apply Rabs_pos; [| exact Hd].
    apply Rle_trans with (1 := Rabs_triang _ _). lra. }
  eapply Rle_trans; [eapply Rle_trans; [apply Rabs_triang |]; apply Rplus_le_compat; [apply Rabs_triang | exact H3] |].
  apply Rle_trans with (((1 + u) ^ a * (1 + u) - (1 + u)) * size l + ((1 + u) ^ b * (1 + u) - (1 + u)) * size r + (size l + size r) * u); [lra |].
  assert (((1 + u) ^ a * (1 + u)) * size l <= (1 + u) ^ k * size l) by (apply Rmult_le_compat_r; lra).
  assert (((1 + u) ^ b * (1 + u)) * size r <= (1 + u) ^ k * size r) by (apply Rmult_le_compat_r; lra).
  lra.
Qed.

(** Sums of n numbers that were rounded c times each, in any order: within gamma_(c + n - 1) of their sizes. *)
Theorem sums_in_any_order u c t :
  0 <= u -> rounded u c t -> INR (c + (leaves t - 1)) * u < 1 ->
  Rabs (computed t - exact t) <= gamma u (c + (leaves t - 1)) * size t.
Proof.
intros Hu Ht Hk. apply Rle_trans with (1 := sums_in_any_order_pow u c t Hu Ht).
apply Rmult_le_compat_r; [apply size_pos | now apply roundings].
Qed.

(** *** 11, Account: inner nodes by how many leaves they have *)

Fixpoint inner (j : nat) t : nat :=
  match t with
  | Leaf _ _ => 0
  | Node _ l r => (if Nat.leb j (leaves l + leaves r) then 1 else 0) + inner j l + inner j r
  end.

(** At most k - j + 1 of the k - 1 inner nodes have j leaves or more. *)
Theorem tree_count j t : (2 <= j)%nat -> (inner j t <= leaves t + 1 - j)%nat.
Proof.
intros Hj. induction t as [x e | d l IHl r IHr]; simpl; [lia |].
assert (leaves_pos_l := leaves_pos l). assert (leaves_pos_r := leaves_pos r).
assert (Z : forall s, (leaves s < j)%nat -> inner j s = 0%nat).
{ induction s as [x e | d' a IHa b IHb]; simpl; [reflexivity |]. intros H.
  assert (La := leaves_pos a). assert (Lb := leaves_pos b).
  destruct (Nat.leb_spec j (leaves a + leaves b)); [lia |]. rewrite IHa, IHb; lia. }
destruct (Nat.leb_spec j (leaves l + leaves r)).
- destruct (Nat.lt_ge_cases (leaves l) j) as [A | A]; destruct (Nat.lt_ge_cases (leaves r) j) as [B | B];
    try rewrite (Z l A); try rewrite (Z r B); lia.
- rewrite (Z l), (Z r); lia.
Qed.

Fixpoint over_nodes (M : nat -> R) t : R :=
  match t with Leaf _ _ => 0 | Node _ l r => M (leaves l + leaves r)%nat + over_nodes M l + over_nodes M r end.

Fixpoint upto (M : nat -> R) (from count : nat) : R :=
  match count with O => 0 | S n => M from + upto M (S from) n end.

Lemma upto_last M from n : upto M from (S n) = upto M from n + M (from + n)%nat.
Proof.
revert from. induction n as [| n IH]; intros from.
- simpl. replace (from + 0)%nat with from by lia. lra.
- change (upto M from (S (S n))) with (M from + upto M (S from) (S n)). rewrite IH. simpl.
  replace (S (from + n)) with (from + S n)%nat by lia. lra.
Qed.

Lemma upto_split M from a b : upto M from (a + b) = upto M from a + upto M (from + a) b.
Proof.
revert from. induction a as [| a IH]; intros from; simpl; [rewrite Nat.add_0_r; lra |].
rewrite IH. replace (S from + a)%nat with (from + S a)%nat by lia. lra.
Qed.

Lemma upto_shift M from more n :
  (forall i j, (i <= j)%nat -> M i <= M j) -> upto M from n <= upto M (from + more) n.
Proof.
intros HM. revert from. induction n as [| n IH]; intros from; simpl; [lra |].
assert (M from <= M (from + more)%nat) by (apply HM; lia). specialize (IH (S from)). simpl in IH. lra.
Qed.

(** So all results together are at most M_2 + ... + M_k, if a sum of j of the terms is at most M_j, which rises with j. *)
Theorem results_of_any_order M t :
  (forall i j, (i <= j)%nat -> M i <= M j) -> over_nodes M t <= upto M 2 (leaves t - 1).
Proof.
intros HM. induction t as [x e | d l IHl r IHr]; simpl; [lra |].
assert (Ll := leaves_pos l). assert (Lr := leaves_pos r).
replace (leaves l + leaves r - 1)%nat with ((leaves l - 1) + S (leaves r - 1))%nat by lia.
rewrite upto_split, upto_last.
replace (2 + (leaves l - 1) + (leaves r - 1))%nat with (leaves l + leaves r)%nat by lia.
assert (upto M 2 (leaves r - 1) <= upto M (2 + (leaves l - 1)) (leaves r - 1)) by now apply upto_shift.
lra.
Qed.

(** *** 12.1, few sums: silent terms are rounded by at most what they are *)

(** A node returns the sum of both sides, plus d. Rounded to nearest, d is at most u of the sum; and, the other side being
    itself a number of the format, at most the size of either side. *)
Inductive order : Type :=
  | Active (x : R)
  | Silent (x : R)
  | Add (d : R) (left right : order).

Fixpoint total o : R := match o with Active x | Silent x => x | Add d l r => total l + total r + d end.
Fixpoint truth o : R := match o with Active x | Silent x => x | Add _ l r => truth l + truth r end.
Fixpoint actives o : nat := match o with Active _ => 1 | Silent _ => 0 | Add _ l r => actives l + actives r end.
Fixpoint terms o : nat := match o with Active _ | Silent _ => 1 | Add _ l r => terms l + terms r end.
Fixpoint heavy o : R := match o with Active x => Rabs x | Silent _ => 0 | Add _ l r => heavy l + heavy r end.
Fixpoint light o : R := match o with Active _ => 0 | Silent x => Rabs x | Add _ l r => light l + light r end.
Fixpoint nearest u o : Prop :=
  match o with
  | Active _ | Silent _ => True
  | Add d l r =>
      Rabs d <= u * Rabs (total l + total r) /\ Rabs d <= Rabs (total l) /\ Rabs d <= Rabs (total r)
      /\ nearest u l /\ nearest u r
  end.

Lemma heavy_pos o : 0 <= heavy o. Proof. induction o; simpl; try apply Rabs_pos; lra. Qed.
Lemma light_pos o : 0 <= light o. Proof. induction o; simpl; try apply Rabs_pos; lra. Qed.
Lemma terms_pos o : (1 <= terms o)%nat. Proof. induction o; simpl; lia. Qed.
Lemma truth_size o : Rabs (truth o) <= heavy o + light o.
Proof. induction o; simpl; try lra. eapply Rle_trans; [apply Rabs_triang | lra]. Qed.

Lemma any_sums u o :
  0 <= u -> nearest u o -> Rabs (total o - truth o) <= ((1 + u) ^ (terms o - 1) - 1) * (heavy o + light o).
Proof.
intros Hu. induction o as [x | x | d l IHl r IHr]; simpl.
- intros _. rewrite Rminus_diag_eq by reflexivity. rewrite Rabs_R0. lra.
- intros _. rewrite Rminus_diag_eq by reflexivity. rewrite Rabs_R0. lra.
- intros (Hd & _ & _ & Hl & Hr). specialize (IHl Hl). specialize (IHr Hr).
  assert (Tl := terms_pos l). assert (Tr := terms_pos r).
  assert (SL := truth_size l). assert (SR := truth_size r).
  assert (PL := heavy_pos l). assert (PR := heavy_pos r). assert (QL := light_pos l). assert (QR := light_pos r).
  set (k := (terms l + terms r - 1)%nat).
  assert (A : (1 + u) ^ (terms l - 1) * (1 + u) <= (1 + u) ^ k).
  { rewrite Rmult_comm, tech_pow_Rmult. apply pow_le_more; [exact Hu | unfold k; lia]. }
  assert (B : (1 + u) ^ (terms r - 1) * (1 + u) <= (1 + u) ^ k).
  { rewrite Rmult_comm, tech_pow_Rmult. apply pow_le_more; [exact Hu | unfold k; lia]. }
  set (el := total l - truth l) in *. set (er := total r - truth r) in *.
  replace (total l + total r + d - (truth l + truth r)) with (el + er + d) by (unfold el, er; ring).
  assert (W : Rabs (total l + total r) <= Rabs el + Rabs er + (heavy l + light l) + (heavy r + light r)).
  { replace (total l + total r) with (el + truth l + (er + truth r)) by (unfold el, er; ring).
    eapply Rle_trans; [apply Rabs_triang |].
    assert (Rabs (el + truth l) <= Rabs el + (heavy l + light l)) by (eapply Rle_trans; [apply Rabs_triang | lra]).
    assert (Rabs (er + truth r) <= Rabs er + (heavy r + light r)) by (eapply Rle_trans; [apply Rabs_triang | lra]). lra. }
  assert (V : Rabs (el + er + d) <= Rabs el + Rabs er + Rabs d).
  { eapply Rle_trans; [apply Rabs_triang |]. apply Rplus_le_compat_r, Rabs_triang. }
  set (xl := heavy l + light l) in *. set (xr := heavy r + light r) in *.
  assert (0 <= xl) by (unfold xl; lra). assert (0 <= xr) by (unfold xr; lra).
  assert (u * Rabs (total l + total r) <= u * (Rabs el + Rabs er + xl + xr)) by (apply Rmult_le_compat_l; lra).
  replace (heavy l + heavy r + (light l + light r)) with (xl + xr) by (unfold xl, xr; ring).
  assert (Rabs el * (1 + u) <= ((1 + u) ^ (terms l - 1) * (1 + u) - (1 + u)) * xl).
  { replace (((1 + u) ^ (terms l - 1) * (1 + u) - (1 + u)) * xl) with (((1 + u) ^ (terms l - 1) - 1) * xl * (1 + u)) by ring.
    apply Rmult_le_compat_r; lra. }
  assert (Rabs er * (1 + u) <= ((1 + u) ^ (terms r - 1) * (1 + u) - (1 + u)) * xr).
  { replace (((1 + u) ^ (terms r - 1) * (1 + u) - (1 + u)) * xr) with (((1 + u) ^ (terms r - 1) - 1) * xr * (1 + u)) by ring.
    apply Rmult_le_compat_r; lra. }
  assert ((1 + u) ^ (terms l - 1) * (1 + u) * xl <= (1 + u) ^ k * xl) by (apply Rmult_le_compat_r; lra).
  assert ((1 + u) ^ (terms r - 1) * (1 + u) * xr <= (1 + u) ^ k * xr) by (apply Rmult_le_compat_r; lra).
  lra.
Qed.

Lemma no_active o : actives o = 0%nat -> heavy o = 0.
Proof. induction o; simpl; intros; [lia | reflexivity | rewrite IHo1, IHo2 by lia; lra]. Qed.

Lemma few_sums_pow u o :
  0 <= u -> nearest u o -> (1 + u) ^ (terms o) <= 9 / 8 -> (1 <= actives o)%nat ->
  Rabs (total o - truth o) <= ((1 + u) ^ (actives o - 1) - 1) * (heavy o + light o) + (1 + u) ^ (actives o - 1) * (5 / 4 * light o).
Proof.
intros Hu. induction o as [x | x | d l IHl r IHr]; simpl; [intros _ _ _ | lia |].
- rewrite Rminus_diag_eq by reflexivity. rewrite Rabs_R0. lra.
- intros (Hd & Dl & Dr & Hl & Hr) HT HA.
  assert (Tl := terms_pos l). assert (Tr := terms_pos r).
  assert (TL : (1 + u) ^ terms l <= 9 / 8) by (apply Rle_trans with (2 := HT), pow_le_more; [exact Hu | lia]).
  assert (TR : (1 + u) ^ terms r <= 9 / 8) by (apply Rle_trans with (2 := HT), pow_le_more; [exact Hu | lia]).
  assert (SL := truth_size l). assert (SR := truth_size r).
  assert (PL := heavy_pos l). assert (PR := heavy_pos r). assert (QL := light_pos l). assert (QR := light_pos r).
  set (el := total l - truth l) in *. set (er := total r - truth r) in *.
  replace (total l + total r + d - (truth l + truth r)) with (el + er + d) by (unfold el, er; ring).
  assert (V : Rabs (el + er + d) <= Rabs el + Rabs er + Rabs d).
  { eapply Rle_trans; [apply Rabs_triang |]. apply Rplus_le_compat_r, Rabs_triang. }
  assert (alone : forall s, nearest u s -> (1 + u) ^ terms s <= 9 / 8 -> actives s = 0%nat ->
    heavy s = 0 /\ Rabs (total s - truth s) <= / 8 * light s /\ Rabs (total s) <= 9 / 8 * light s).
  { intros s Hs Ts As. assert (Ls := light_pos s). assert (E := no_active s As). split; [exact E |].
    assert (B := any_sums u s Hu Hs). rewrite E in B.
    assert ((1 + u) ^ (terms s - 1) <= 9 / 8) by (apply Rle_trans with (2 := Ts), pow_le_more; [exact Hu | lia]).
    assert (Rabs (total s - truth s) <= / 8 * light s).
    { apply Rle_trans with (1 := B). rewrite Rplus_0_l. apply Rmult_le_compat_r; lra. }
    split; [assumption |]. assert (C := truth_size s). rewrite E in C.
    replace (total s) with (total s - truth s + truth s) by ring. eapply Rle_trans; [apply Rabs_triang | lra]. }
  destruct (Nat.eq_dec (actives l) 0) as [Zl | Zl]; [| destruct (Nat.eq_dec (actives r) 0) as [Zr | Zr]].
  + destruct (alone l Hl TL Zl) as (E & B1 & B2). fold el in B1.
    assert (B3 := IHr Hr TR ltac:(lia)). fold er in B3. rewrite E, Zl in *. simpl in *.
    assert (1 <= (1 + u) ^ (actives r - 1)) by (apply pow_R1_Rle; lra). nra.
  + destruct (alone r Hr TR Zr) as (E & B1 & B2). fold er in B1.
    assert (B3 := IHl Hl TL ltac:(lia)). fold el in B3. rewrite E, Zr, Nat.add_0_r in *.
    assert (1 <= (1 + u) ^ (actives l - 1)) by (apply pow_R1_Rle; lra). nra.
  + assert (B1 := IHl Hl TL ltac:(lia)). assert (B2 := IHr Hr TR ltac:(lia)). fold el in B1. fold er in B2.
    set (k := (actives l + actives r - 1)%nat).
    assert (A : (1 + u) ^ (actives l - 1) * (1 + u) <= (1 + u) ^ k).
    { rewrite Rmult_comm, tech_pow_Rmult. apply pow_le_more; [exact Hu | unfold k; lia]. }
    assert (B : (1 + u) ^ (actives r - 1) * (1 + u) <= (1 + u) ^ k).
    { rewrite Rmult_comm, tech_pow_Rmult. apply pow_le_more; [exact Hu | unfold k; lia]. }
    set (pl := (1 + u) ^ (actives l - 1)) in *. set (pr := (1 + u) ^ (actives r - 1)) in *. set (p := (1 + u) ^ k) in *.
    assert (W : Rabs (total l + total r) <= Rabs el + Rabs er + (heavy l + light l) + (heavy r + light r)).
    { replace (total l + total r) with (el + truth l + (er + truth r)) by (unfold el, er; ring).
      eapply Rle_trans; [apply Rabs_triang |].
      assert (Rabs (el + truth l) <= Rabs el + (heavy l + light l)) by (eapply Rle_trans; [apply Rabs_triang | lra]).
      assert (Rabs (er + truth r) <= Rabs er + (heavy r + light r)) by (eapply Rle_trans; [apply Rabs_triang | lra]). lra. }
    assert (W2 : Rabs d <= u * (Rabs el + Rabs er + (heavy l + light l) + (heavy r + light r))).
    { apply Rle_trans with (1 := Hd). apply Rmult_le_compat_l; lra. }
    assert (M1 : Rabs el * (1 + u) <= ((pl - 1) * (heavy l + light l) + pl * (5 / 4 * light l)) * (1 + u)) by (apply Rmult_le_compat_r; lra).
    assert (M2 : Rabs er * (1 + u) <= ((pr - 1) * (heavy r + light r) + pr * (5 / 4 * light r)) * (1 + u)) by (apply Rmult_le_compat_r; lra).
    assert (N1 : pl * (1 + u) * (heavy l + light l + 5 / 4 * light l) <= p * (heavy l + light l + 5 / 4 * light l)) by (apply Rmult_le_compat_r; lra).
    assert (N2 : pr * (1 + u) * (heavy r + light r + 5 / 4 * light r) <= p * (heavy r + light r + 5 / 4 * light r)) by (apply Rmult_le_compat_r; lra).
    lra.
Qed.

(** A sum of T terms, A of them active, is off by gamma_(A-1) of the active ones, and 1.6 times the silent ones. *)
Theorem few_sums u o :
  0 <= u -> nearest u o -> INR (terms o) * u < 1 -> gamma u (terms o) <= FEW_GAMMA -> (1 <= actives o)%nat ->
  Rabs (total o - truth o) <= gamma u (actives o - 1) * heavy o + 8 / 5 * light o.
Proof.
intros Hu Ho Hk Hg HA. unfold FEW_GAMMA in Hg.
assert (R1 := roundings u (terms o) Hu Hk).
assert (AT : (actives o <= terms o)%nat) by (clear; induction o; simpl; lia).
assert (Hk' : INR (actives o - 1) * u < 1).
{ apply Rle_lt_trans with (2 := Hk). apply Rmult_le_compat_r; [exact Hu |]. apply le_INR. lia. }
assert (R2 := roundings u (actives o - 1) Hu Hk').
assert (P : (1 + u) ^ (actives o - 1) <= 9 / 8).
{ apply Rle_trans with ((1 + u) ^ terms o); [apply pow_le_more; [exact Hu | lia] | lra]. }
assert (H := few_sums_pow u o Hu Ho ltac:(lra) HA).
assert (L := light_pos o). assert (Q := heavy_pos o).
apply Rle_trans with (1 := H).
assert (((1 + u) ^ (actives o - 1) - 1) * heavy o <= gamma u (actives o - 1) * heavy o) by (apply Rmult_le_compat_r; lra).
assert (((1 + u) ^ (actives o - 1) - 1) * light o <= / 8 * light o) by (apply Rmult_le_compat_r; lra).
assert ((1 + u) ^ (actives o - 1) * (5 / 4 * light o) <= 9 / 8 * (5 / 4 * light o)) by (apply Rmult_le_compat_r; lra).
lra.
Qed.

(** A mean N / D is computed from such sums: with D = 1 for the exact one, |N| <= V, g = gamma_A and silent tokens of the
    weight w, both sums are off by g and 1.6 w of their sizes, and the quotient by gamma_(2A) + 6 w of V. *)
Theorem few_sums_quotient N N' D' g w V :
  0 <= g <= FEW_GAMMA -> 0 <= w <= FEW_SILENT -> Rabs N <= V ->
  Rabs (N' - N) <= g * V + 8 / 5 * w * V -> Rabs (D' - 1) <= g + 8 / 5 * w ->
  Rabs (N' / D' - N) <= (2 * g / (1 - g) + 6 * w) * V.
Proof.
unfold FEW_GAMMA, FEW_SILENT. intros Hg Hw HN HN' HD'.
assert (V0 : 0 <= V) by (apply Rle_trans with (2 := HN), Rabs_pos).
assert (D := HD'). apply Rabs_le_iff in D. assert (P : 0 < D') by lra.
replace (N' / D' - N) with ((N' - N - N * (D' - 1)) / D') by (field; lra).
unfold Rdiv at 1. rewrite Rabs_mult, (Rabs_pos_eq (/ D')) by (left; now apply Rinv_0_lt_compat).
set (x := g + 8 / 5 * w). assert (X : Rabs (N' - N - N * (D' - 1)) <= 2 * x * V).
{ replace (2 * x * V) with (x * V + V * x) by ring. unfold Rminus at 1.
  apply Rle_trans with (1 := Rabs_triang _ _). rewrite Rabs_Ropp, Rabs_mult.
  apply Rplus_le_compat; [unfold x; lra |]. apply Rmult_le_compat; try apply Rabs_pos; [exact HN | exact HD']. }
assert (Hx : 0 <= x <= 9 / 40) by (unfold x; lra).
apply Rle_trans with (2 * x * V * / (1 - x)).
- apply Rmult_le_compat; [apply Rabs_pos | left; now apply Rinv_0_lt_compat | exact X |].
  apply Rinv_le_contravar; unfold x in *; lra.
- replace (2 * x * V * / (1 - x)) with (2 * x / (1 - x) * V) by (field; lra).
  apply Rmult_le_compat_r; [exact V0 |]. apply Rdiv_le_of; [lra |].
  apply Rmult_le_reg_l with (1 - g); [lra |].
  replace ((1 - g) * ((2 * g / (1 - g) + 6 * w) * (1 - x))) with ((2 * g + 6 * w * (1 - g)) * (1 - x)) by (field; lra).
  unfold x. assert (0 <= g * w) by nra. assert (0 <= w * w) by nra. assert (g * w <= w / 8) by nra.
  assert (w * w <= w / 16) by nra. nra.
Qed.

Theorem gamma_twice u k : 0 <= u -> INR (2 * k) * u < 1 -> 2 * gamma u k / (1 - gamma u k) = gamma u (2 * k).
Proof.
intros Hu H. rewrite mult_INR in H. unfold gamma. rewrite mult_INR. simpl (INR 2) in *.
assert (0 <= INR k * u) by (apply Rmult_le_pos; [apply pos_INR | exact Hu]). field. repeat split; nra.
Qed.
