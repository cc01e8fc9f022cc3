(* Whatever a ledger admits is (epsilon, delta)-private together.

   `admits` is the rule of src/sfumato/core/cost/budget.py and filter.py in whole numbers and fractions: it is extracted
   and compared with the code. `ledger_private` is about people who choose every question on seeing all earlier answers:
   trees of mechanisms, with failures, for every rule that the ledger has. *)
Require Import Reals Lra Lia Psatz ZArith QArith Qreals List Bool.
From Sfumato Require Import Sums Filter.
Import ListNotations.

(* ==== The rule, as the code has it ==== *)

(* A charge is a list of costs, each of one mechanism used `uses` times: its pure epsilon in all, the chance that any of the
   uses fails, what one use takes beside each reserve, and its divergence at each order in all. Amounts are in units. *)
Record cost := Cost { pure : option Q; fails : Q; prices : option (list Z); uses : Z; renyi : list Z }.

Record limits := Limits { most_gaussian : Z; most_orders : list Z; set_aside : bool }.

(* The budget: its limits at the parts of delta, the same where a pure first charge is set aside, and for all of delta. *)
Record budget := Budget { epsilon : Q; delta : Q; selection : Q;
  plain : limits; aside : Q -> limits; whole : limits }.

Section Rule.
Variable reserves : list Z.

Open Scope Z_scope.

(* n uses paid from b, each beside the largest reserve that stays whole: `_pay`. *)
Fixpoint walk (l : list (Z * Z)) (n b : Z) : option Z :=
  match l with
  | [] => None
  | (r, c) :: l => let u := Z.min n (Z.max 0 (b - r) / c) in
      if n - u =? 0 then Some (b - u * c) else walk l (n - u) (b - u * c)
  end.

Definition pay_cost (b : option Z) (c : cost) : option Z :=
  match b, prices c with Some b, Some l => walk (combine reserves l) (uses c) b | _, _ => None end.

Definition pay (b : option Z) (charge : list cost) : option Z := fold_left pay_cost charge b.

Definition gaussian_left (l : limits) (h : list (list cost)) : option Z :=
  match h with
  | [] => Some (most_gaussian l)
  | first :: rest =>
      pay (if set_aside l then Some (most_gaussian l) else pay (Some (most_gaussian l)) first) (concat rest)
  end.

Definition order_sum (k : nat) (all : list cost) : Z := fold_right (fun c t => nth k (renyi c) 0 + t) 0 all.

Definition admits_trail (l : limits) (h : list (list cost)) : bool :=
  match gaussian_left l h with Some _ => true | None => false end
  || existsb (fun k => order_sum k (concat h) <=? nth k (most_orders l) (-1)) (seq 0 (length (most_orders l))).

Definition sum_fails (all : list cost) : Q := fold_right (fun c t => Qred (fails c + t)%Q) 0%Q all.

Definition sum_pure (all : list cost) : option Q :=
  fold_right (fun c t => match pure c, t with Some e, Some t => Some (Qred (e + t)%Q) | _, _ => None end)
    (Some 0%Q) all.

Definition below (a b : Q) : bool := negb (Qle_bool b a).

Definition choose_limits (B : budget) (first : list cost) : option limits :=
  match sum_pure first with
  | Some e =>
      if below e (epsilon B) then
        let left := match pay (Some (most_gaussian (plain B))) first with Some b => b | None => 0 end in
        if left <? most_gaussian (aside B e) then Some (aside B e) else Some (plain B)
      else if Qeq_bool e (epsilon B) || admits_trail (plain B) [first] then Some (plain B) else None
  | None => if admits_trail (plain B) [first] then Some (plain B) else None
  end.

(* The limits that the first charge chooses, and the part of delta for failures. *)
Definition choose (B : budget) (first : list cost) : limits * Q :=
  if Qle_bool (sum_fails first) (selection B) then
    match choose_limits B first with Some l => (l, selection B) | None => (whole B, 0%Q) end
  else (whole B, 0%Q).

Definition admits (B : budget) (h : list (list cost)) : bool :=
  match h with
  | [] => true
  | first :: _ =>
      let all := concat h in
      let (l, part) := if Qeq_bool (delta B) 0 then (plain B, selection B) else choose B first in
      Qle_bool (sum_fails all) part &&
      (match sum_pure all with Some e => Qle_bool e (epsilon B) | None => false end
       || (negb (Qeq_bool (delta B) 0) && admits_trail l h))
  end.

(* ---- Uses paid at once are uses paid one by one. ---- *)
Definition priced (l : list (Z * Z)) := Forall (fun rc => 0 <= fst rc /\ 0 < snd rc) l.

Lemma walk_one : forall l b b', priced l -> walk l 1 b = Some b' ->
  exists r c, In (r, c) l /\ b' = b - c /\ r <= b'.
Proof.
  induction l as [|[r c] l IH]; intros b b' Hl H; cbn [walk] in H; [discriminate|].
  inversion Hl as [|? ? [Hr Hc] Hl']; subst; simpl in Hr, Hc.
  destruct (Z.eqb_spec (1 - Z.min 1 (Z.max 0 (b - r) / c)) 0) as [E|E].
  - injection H as H. assert (1 <= Z.max 0 (b - r) / c) as Hq by lia.
    assert (c * 1 <= Z.max 0 (b - r)) as Hb.
    { apply Z.le_trans with (c * (Z.max 0 (b - r) / c)); [apply Z.mul_le_mono_nonneg_l; lia|].
      apply Z.mul_div_le. lia. }
    exists r, c. split; [left; auto|]. rewrite Z.min_l in H by lia. clear E Hq. lia.
  - assert (Z.min 1 (Z.max 0 (b - r) / c) = 0) as E0.
    { assert (0 <= Z.max 0 (b - r) / c) by (apply Z.div_pos; lia). lia. }
    rewrite E0 in H. rewrite Z.mul_0_l, !Z.sub_0_r in H.
    destruct (IH b b' Hl' H) as (r' & c' & Hin & Heq). exists r', c'. split; [right; auto | auto].
Qed.

Lemma walk_step : forall l n b b', priced l -> 1 <= n -> walk l (n + 1) b = Some b' ->
  exists b1, walk l 1 b = Some b1 /\ walk l n b1 = Some b'.
Proof.
  induction l as [|[r c] l IH]; intros n b b' Hl Hn H; cbn [walk] in H; [discriminate|].
  inversion Hl as [|? ? [Hr Hc] Hl']; subst; simpl in Hr, Hc.
  set (q := Z.max 0 (b - r) / c) in *.
  assert (0 <= q) as Hq0 by (apply Z.div_pos; lia).
  destruct (Z.eq_dec q 0) as [Hq|Hq].
  - rewrite Hq, Z.min_r, Z.mul_0_l, !Z.sub_0_r in H by lia.
    destruct (Z.eqb_spec (n + 1) 0); [lia|].
    destruct (IH n b b' Hl' Hn H) as (b1 & H1 & H2). exists b1. split.
    + cbn [walk]. fold q. rewrite Hq, Z.min_r, Z.mul_0_l, !Z.sub_0_r by lia. exact H1.
    + destruct (walk_one l b b1 Hl' H1) as (r1 & c1 & Hin & Hb1 & _).
      pose proof (proj1 (Forall_forall _ _) Hl' _ Hin) as Hc1; simpl in Hc1.
      assert (Z.max 0 (b1 - r) / c = 0) as E.
      { assert (Z.max 0 (b1 - r) / c <= q) by (apply Z.div_le_mono; lia).
        assert (0 <= Z.max 0 (b1 - r) / c) by (apply Z.div_pos; lia). lia. }
      cbn [walk]. rewrite E, Z.min_r, Z.mul_0_l, !Z.sub_0_r by lia.
      destruct (Z.eqb_spec n 0); [lia | exact H2].
  - assert (c <= b - r) as Hb.
    { assert (c * 1 <= c * q) as H1 by (apply Z.mul_le_mono_nonneg_l; lia).
      assert (c * q <= Z.max 0 (b - r)) as H2 by (apply Z.mul_div_le; lia).
      generalize dependent (c * q). clear - Hc. intros. lia. }
    exists (b - c). split.
    + cbn [walk]. fold q. rewrite Z.min_l by lia. rewrite Z.sub_diag, Z.eqb_refl, Z.mul_1_l. reflexivity.
    + cbn [walk]. assert (Z.max 0 (b - c - r) / c = q - 1) as E.
      { unfold q. rewrite !Z.max_r by lia. replace (b - c - r) with (b - r + (-1) * c) by lia.
        rewrite Z.div_add by lia. lia. }
      rewrite E. replace (n - Z.min n (q - 1)) with (n + 1 - Z.min (n + 1) q) by lia.
      replace (b - c - Z.min n (q - 1) * c) with (b - Z.min (n + 1) q * c) by nia. exact H.
Qed.

Definition pay_use (b : option Z) (c : cost) : option Z :=
  match b, prices c with Some b, Some l => walk (combine reserves l) 1 b | _, _ => None end.

Definition good_cost (c : cost) := 1 <= uses c /\
  match prices c with Some l => priced (combine reserves l) | None => True end.

Definition expand (all : list cost) : list cost := flat_map (fun c => repeat c (Z.to_nat (uses c))) all.

Lemma fold_use_none : forall c n, fold_left pay_use (repeat c n) None = None.
Proof. intros c n. induction n; simpl; auto. Qed.

Lemma pay_cost_uses : forall c b b', good_cost c -> pay_cost b c = Some b' ->
  fold_left pay_use (repeat c (Z.to_nat (uses c))) b = Some b'.
Proof.
  intros c b b' [Hu Hp] H. unfold pay_cost in H.
  destruct b as [b|]; [|discriminate]. destruct (prices c) as [l|] eqn:E; [|discriminate].
  remember (Z.to_nat (uses c)) as n eqn:Hn.
  assert (uses c = Z.of_nat n) as Hz by (rewrite Hn, Z2Nat.id; lia).
  assert (1 <= n)%nat as Hn1 by lia. rewrite Hz in H. clear Hn Hz Hu. revert b H.
  induction n as [|n IH]; intros b H; [lia|].
  destruct n as [|n].
  - simpl. unfold pay_use. rewrite E. exact H.
  - replace (Z.of_nat (S (S n))) with (Z.of_nat (S n) + 1) in H by lia.
    destruct (walk_step (combine reserves l) (Z.of_nat (S n)) b b' Hp ltac:(lia) H) as (b1 & H1 & H2).
    change (fold_left pay_use (repeat c (S n)) (pay_use (Some b) c) = Some b').
    replace (pay_use (Some b) c) with (Some b1) by (unfold pay_use; rewrite E, H1; reflexivity).
    apply IH; auto. lia.
Qed.

Lemma pay_cost_none : forall charge, pay None charge = None.
Proof. induction charge; simpl; auto. Qed.

Lemma pay_uses : forall charge b b', Forall good_cost charge -> pay b charge = Some b' ->
  fold_left pay_use (expand charge) b = Some b'.
Proof.
  induction charge as [|c charge IH]; intros b b' Hg H; [exact H|].
  inversion Hg; subst. unfold pay in H. simpl in H. unfold expand. simpl. rewrite fold_left_app.
  destruct (pay_cost b c) as [b1|] eqn:E.
  - rewrite (pay_cost_uses c b b1) by auto. apply IH; auto.
  - fold (pay None charge) in H. rewrite pay_cost_none in H. discriminate.
Qed.
End Rule.

(* ==== What it means ==== *)
Open Scope R_scope.

Section Meaning.
Variable gaussian : R -> R -> R -> R.
Hypothesis G : potential_of_gaussians gaussian.
Variable reserves : list Z.
Variable unit : R.
Hypothesis unit_pos : 0 < unit.
Variable orders : nat -> R.                       (* each order less one *)
Hypothesis orders_pos : forall k, 0 < orders k.
Variable width : nat.                             (* how many orders there are *)

(* Amounts of one use. *)
Definition pure_use (c : cost) : option R :=
  match pure c with Some e => Some (Q2R e / IZR (uses c)) | None => None end.
Definition fails_use (c : cost) : R := Q2R (fails c) / IZR (uses c).
Definition renyi_use (c : cost) (k : nat) : R := IZR (nth k (renyi c) 0%Z) / unit / IZR (uses c).

(* A mechanism, held to what cannot fail, is as private as its cost says. *)
Record as_private (c : cost) (n : nat) (p q : nat -> R) : Prop := {
  private_first : chances n p;
  private_second : chances n q;
  private_continuous : forall i, (i < n)%nat -> 0 < p i -> 0 < q i;
  private_pure : forall e, pure_use c = Some e -> pure_private e n p q;
  private_renyi : forall k, (k < width)%nat -> renyi_private (orders k) (renyi_use c k) n p q;
  private_gaussian : forall l r m, prices c = Some l -> In (r, m) (combine reserves l) ->
    has_price gaussian (IZR m / unit) (IZR r / unit) n p q }.

Definition good (c : cost) := good_cost reserves c /\ 0 <= Q2R (fails c).

(* An interaction with two neighbouring tables: at a node one use of a mechanism of cost c, whose outcome i has the chance
   p i and q i if it is held to what cannot fail, and p' i and q' i as it is. What answers alike from both tables is free: such
   are questions to other periods of a window, and to other parts of the people. A leaf knows the charges of its path, and
   whether the transcript is in the event. *)
Inductive tree :=
  | Stop (inside : bool) (charges : list (list cost))
  | Free (n : nat) (p : nat -> R) (next : nat -> tree)
  | Use (c : cost) (n : nat) (p q p' q' : nat -> R) (next : nat -> tree).

Inductive law := Held1 | Held2 | Real1 | Real2.

Fixpoint chance (w : law) (event : bool -> bool) (t : tree) : R :=
  match t with
  | Stop inside _ => if event inside then 1 else 0
  | Free n p next => sum n (fun i => p i * chance w event (next i))
  | Use _ n p q p' q' next => sum n (fun i =>
      (match w with Held1 => p | Held2 => q | Real1 => p' | Real2 => q' end) i * chance w event (next i))
  end.

(* The ledger admits the charges of every path; the first charge was fixed before anything was released. *)
Fixpoint kept (B : budget) (first : list cost) (path : list cost) (t : tree) : Prop :=
  match t with
  | Stop _ charges => exists rest, charges = first :: rest /\ path = expand (concat charges) /\
      Forall good (concat charges) /\ admits reserves B charges = true
  | Free n p next => chances n p /\ forall i, (i < n)%nat -> kept B first path (next i)
  | Use c n p q p' q' next => good c /\ as_private c n p q /\ chances n p' /\ chances n q' /\
      (forall i, (i < n)%nat -> (1 - fails_use c) * p i <= p' i /\ (1 - fails_use c) * q i <= q' i) /\
      forall i, (i < n)%nat -> kept B first (path ++ [c]) (next i)
  end.

(* ---- What every rule has left on the way ---- *)
Record state := State { left_pure : option R; left_orders : nat -> R; skip : nat; left_aside : R; left_gaussian : option Z }.

Definition spend (s : state) (c : cost) : state := State
  (match left_pure s, pure_use c with Some l, Some e => Some (l - e) | _, _ => None end)
  (fun k => left_orders s k - renyi_use c k)
  (pred (skip s))
  (match skip s, pure_use c with S _, Some e => left_aside s - e | _, _ => left_aside s end)
  (match skip s, pure_use c with
   | O, _ => pay_use reserves (left_gaussian s) c
   | S _, Some _ => left_gaussian s
   | S _, None => None end).

Section Limits.
Variable lim : limits.

Definition order_used (k : nat) : bool := (0 <=? nth k (most_orders lim) (-1))%Z.

Definition all_potential (s : state) (a b : R) : R :=
  match left_pure s with Some l => pure_potential l a b | None => 0 end +
  match left_gaussian s with Some u => beside gaussian (left_aside s) (IZR u / unit) a b | None => 0 end +
  sum width (fun k => if order_used k then renyi_potential (orders k) (left_orders s k) a b else 0).

(* Some rule has admitted everything. *)
Definition alive (s : state) : Prop :=
  (exists l, left_pure s = Some l /\ 0 <= l) \/
  (exists u, left_gaussian s = Some u /\ 0 <= left_aside s) \/
  (exists k, (k < width)%nat /\ order_used k = true /\ 0 <= left_orders s k).

Definition sane (s : state) := match left_gaussian s with Some u => (0 <= u)%Z | None => True end.

Lemma units_nonneg : forall u, (0 <= u)%Z -> 0 <= IZR u / unit.
Proof. intros u H. apply Rmult_le_pos; [apply IZR_le; auto | left; apply Rinv_0_lt_compat; auto]. Qed.

Lemma all_nonneg : forall s a b, sane s -> 0 <= a -> 0 <= b ->
  0 <= match left_pure s with Some l => pure_potential l a b | None => 0 end /\
  0 <= match left_gaussian s with Some u => beside gaussian (left_aside s) (IZR u / unit) a b | None => 0 end /\
  0 <= sum width (fun k => if order_used k then renyi_potential (orders k) (left_orders s k) a b else 0).
Proof.
  intros s a b Hs Ha Hb. unfold sane in Hs. split; [|split].
  - destruct (left_pure s); [apply pure_nonneg | lra].
  - destruct (left_gaussian s); [|lra]. apply beside_nonneg; auto. apply units_nonneg; auto.
  - apply sum_nonneg. intros k _. destruct (order_used k); [apply renyi_nonneg; auto | lra].
Qed.

Lemma stop_alive : forall s a b, sane s -> alive s -> 0 <= a -> 0 <= b -> (0 < a -> 0 < b) ->
  a - b <= all_potential s a b.
Proof.
  intros s a b Hs H Ha Hb Hab. destruct (all_nonneg s a b Hs Ha Hb) as (N1 & N2 & N3). unfold all_potential.
  destruct H as [(l & E & Hl)|[(u & E & Hu)|(k & Hk & E & Hl)]].
  - rewrite E in *. pose proof (pure_stop l a b Hl Hb). lra.
  - unfold sane in Hs. rewrite E in *.
    pose proof (beside_stop gaussian G (left_aside s) (IZR u / unit) a b Hu (units_nonneg u Hs) Ha Hb). lra.
  - pose proof (renyi_stop (orders k) (orders_pos k) (left_orders s k) a b Hl Hb Hab) as H.
    assert (renyi_potential (orders k) (left_orders s k) a b <=
      sum width (fun k => if order_used k then renyi_potential (orders k) (left_orders s k) a b else 0)) as H1.
    { assert (forall f m, (forall i, 0 <= f i) -> (k < m)%nat -> f k <= sum m f) as HS.
      { intros f m Hf Hm. induction m as [|m IHm]; [lia|]. simpl.
        destruct (Nat.eq_dec k m) as [->|Hne].
        - pose proof (sum_nonneg m f (fun i _ => Hf i)). lra.
        - pose proof (Hf m). assert (f k <= sum m f) by (apply IHm; lia). lra. }
      set (f := fun k => if order_used k then renyi_potential (orders k) (left_orders s k) a b else 0).
      replace (renyi_potential (orders k) (left_orders s k) a b) with (f k) by (unfold f; rewrite E; auto).
      apply HS; auto. intros i. unfold f. destruct (order_used i); [apply renyi_nonneg; auto | lra]. }
    lra.
Qed.

Lemma zero_le_sane : forall s c, good c -> sane s -> sane (spend s c).
Proof.
  intros s c [[_ Hc] _] Hs. unfold sane, spend in *. simpl.
  destruct (skip s); [|destruct (pure_use c); [exact Hs | exact I]].
  unfold pay_use. destruct (left_gaussian s) as [u|]; [|exact I]. destruct (prices c) as [l|]; [|exact I].
  destruct (walk (combine reserves l) 1 u) as [u'|] eqn:E; [|exact I].
  destruct (walk_one _ _ _ Hc E) as (r & m & Hin & _ & Hr).
  pose proof (proj1 (Forall_forall _ _) Hc _ Hin) as H. simpl in H. lia.
Qed.

Lemma step_all : forall s c n p q a b, good c -> sane s -> as_private c n p q ->
  0 <= a -> 0 <= b -> (0 < a -> 0 < b) ->
  sum n (fun i => all_potential (spend s c) (a * p i) (b * q i)) <= all_potential s a b.
Proof.
  intros s c n p q a b Hc Hs V Ha Hb Hab.
  pose proof (private_first _ _ _ _ V) as Vp. pose proof (private_second _ _ _ _ V) as Vq.
  unfold all_potential. rewrite !sum_plus.
  apply Rplus_le_compat; [apply Rplus_le_compat|].
  - unfold spend. simpl. destruct (left_pure s) as [l|]; [|rewrite sum_zero by auto; lra].
    destruct (pure_use c) as [e|] eqn:E.
    + apply pure_step; auto. apply (private_pure _ _ _ _ V); auto.
    + rewrite sum_zero by auto. apply pure_nonneg.
  - unfold spend. simpl. unfold sane in Hs.
    assert (0 <= match left_gaussian s with
      Some u => beside gaussian (left_aside s) (IZR u / unit) a b | None => 0 end) as N by (apply all_nonneg; auto).
    destruct (skip s) as [|k].
    + unfold pay_use. destruct (left_gaussian s) as [u|]; [|rewrite sum_zero by auto; lra].
      destruct (prices c) as [l|] eqn:E; [|rewrite sum_zero by auto; lra].
      destruct (walk (combine reserves l) 1 u) as [u'|] eqn:W; [|rewrite sum_zero by auto; lra].
      assert (priced (combine reserves l)) as Hl by (destruct Hc as [[_ Hc] _]; rewrite E in Hc; exact Hc).
      destruct (walk_one _ _ _ Hl W) as (r & m & Hin & Heq & Hr).
      pose proof (proj1 (Forall_forall _ _) Hl _ Hin) as Hrm. simpl in Hrm.
      replace (IZR u / unit) with (IZR u' / unit + IZR m / unit)
        by (replace u with (u' + m)%Z by lia; rewrite plus_IZR; field; lra).
      apply beside_other with (r := IZR r / unit); auto.
      * apply (private_gaussian _ _ _ _ V l); auto.
      * apply units_nonneg; lia.
      * apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat; auto | apply IZR_le; auto].
    + destruct (pure_use c) as [e|] eqn:E.
      * destruct (left_gaussian s) as [u|]; [|rewrite sum_zero by auto; lra].
        apply beside_pure; auto; [apply (private_pure _ _ _ _ V); auto | apply units_nonneg; auto].
      * rewrite sum_zero by auto. exact N.
  - assert (forall m, (m <= width)%nat ->
      sum n (fun i => sum m (fun k => if order_used k
        then renyi_potential (orders k) (left_orders (spend s c) k) (a * p i) (b * q i) else 0)) <=
      sum m (fun k => if order_used k then renyi_potential (orders k) (left_orders s k) a b else 0)) as H.
    { induction m as [|m IH]; intros Hm; simpl; [rewrite sum_zero; auto; lra|].
      rewrite sum_plus. apply Rplus_le_compat; [apply IH; lia|].
      destruct (order_used m); [|rewrite sum_zero; auto; lra].
      apply renyi_step; auto. apply (private_renyi _ _ _ _ V). lia. }
    apply H. auto.
Qed.

Lemma all_scales : forall s a b t, sane s -> 0 <= a -> 0 <= b -> 0 <= t -> (0 < a -> 0 < b) ->
  all_potential s (a * t) (b * t) = all_potential s a b * t.
Proof.
  intros s a b t Hs Ha Hb Ht Hab. unfold all_potential. rewrite !Rmult_plus_distr_r, <- sum_scale_right. f_equal; [f_equal|].
  - destruct (left_pure s); [|ring]. apply pure_scales; auto.
  - unfold sane in Hs. destruct (left_gaussian s) as [u|]; [|ring]. unfold beside.
    replace (b * t * exp (- left_aside s)) with (t * (b * exp (- left_aside s))) by ring.
    rewrite (Rmult_comm a t), (gaussian_scales _ G); [ring | apply units_nonneg; auto | auto | auto |].
    apply Rmult_le_pos; [auto | left; apply exp_pos].
  - apply sum_ext. intros k _. destruct (order_used k); [|ring]. apply renyi_scales; auto.
Qed.

(* Along every path of an admitted interaction some rule is alive at the end. *)
Fixpoint ends_alive (s : state) (t : tree) : Prop :=
  match t with
  | Stop _ _ => alive s
  | Free n p next => chances n p /\ forall i, (i < n)%nat -> ends_alive s (next i)
  | Use c n p q _ _ next => good c /\ as_private c n p q /\ forall i, (i < n)%nat -> ends_alive (spend s c) (next i)
  end.

Theorem potential : forall t s a b, ends_alive s t -> sane s -> 0 <= a -> 0 <= b -> (0 < a -> 0 < b) ->
  a * chance Held1 (fun x => x) t - b * chance Held2 (fun x => x) t <= all_potential s a b.
Proof.
  induction t as [inside h|n p next IH|c n p q p' q' next IH]; intros s a b H Hs Ha Hb Hab; simpl in *.
  - destruct (all_nonneg s a b Hs Ha Hb) as (N1 & N2 & N3). pose proof (stop_alive s a b Hs H Ha Hb Hab).
    unfold all_potential in *. destruct inside; lra.
  - destruct H as ([Hp1 Hp] & Hn). rewrite <- !sum_scale, <- sum_minus.
    apply Rle_trans with (sum n (fun i => all_potential s a b * p i)); [|rewrite sum_scale, Hp1; lra].
    apply sum_le. intros i Hi. specialize (Hp i Hi). rewrite <- all_scales by auto.
    replace (a * (p i * chance Held1 (fun x => x) (next i)) - b * (p i * chance Held2 (fun x => x) (next i)))
      with (a * p i * chance Held1 (fun x => x) (next i) - b * p i * chance Held2 (fun x => x) (next i)) by ring.
    apply IH; auto; try (apply Rmult_le_pos; auto). intros H0. destruct (Rle_lt_or_eq_dec 0 (p i) Hp) as [P|P]; [|rewrite <- P in H0; lra].
    apply Rmult_lt_0_compat; auto. apply Hab. destruct (Rle_lt_or_eq_dec 0 a Ha) as [A|A]; auto. rewrite <- A in H0. lra.
  - destruct H as (Hc & V & Hn). rewrite <- !sum_scale, <- sum_minus.
    apply Rle_trans with (sum n (fun i => all_potential (spend s c) (a * p i) (b * q i))).
    + apply sum_le. intros i Hi.
      destruct (private_first _ _ _ _ V) as [_ Hp]. destruct (private_second _ _ _ _ V) as [_ Hq].
      specialize (Hp i Hi). specialize (Hq i Hi).
      pose proof (private_continuous _ _ _ _ V i Hi) as Hpq.
      replace (a * (p i * chance Held1 (fun x => x) (next i)) - b * (q i * chance Held2 (fun x => x) (next i)))
        with (a * p i * chance Held1 (fun x => x) (next i) - b * q i * chance Held2 (fun x => x) (next i)) by ring.
      apply IH; auto; [apply zero_le_sane; auto | apply Rmult_le_pos; auto | apply Rmult_le_pos; auto |].
      intros Hap. destruct (Rle_lt_or_eq_dec 0 a Ha) as [A|A]; [|subst; lra].
      assert (0 < p i) by (destruct (Rle_lt_or_eq_dec 0 (p i) Hp) as [P|P]; [lra | rewrite <- P in Hap; lra]).
      apply Rmult_lt_0_compat; auto.
    + apply step_all; auto.
Qed.
End Limits.

(* ---- From the rule of the code to the states ---- *)
Definition begin (B : budget) (l : limits) (first : list cost) : state :=
  let apart := match sum_pure first with Some e => if set_aside l then Q2R e else 0 | None => 0 end in
  State (Some (Q2R (epsilon B))) (fun k => IZR (nth k (most_orders l) (-1)%Z) / unit)
    (if set_aside l then length (expand first) else 0%nat) apart (Some (most_gaussian l)).

Lemma Q2R_red : forall q, Q2R (Qred q) = Q2R q.
Proof. intros. apply Qeq_eqR, Qred_correct. Qed.

Definition total (f : cost -> R) (l : list cost) : R := fold_right (fun c t => f c + t) 0 l.

Lemma total_app : forall f l m, total f (l ++ m) = total f l + total f m.
Proof. intros f l m. induction l as [|c l IH]; simpl; [lra|]. rewrite IH. lra. Qed.

Lemma total_repeat : forall f c n, total f (repeat c n) = INR n * f c.
Proof.
  intros f c n. induction n as [|n IH]; [simpl; lra|].
  change (repeat c (S n)) with (c :: repeat c n). rewrite S_INR. unfold total in *. simpl. rewrite IH. lra.
Qed.

Lemma total_expand : forall (f : cost -> R) l, Forall good l ->
  total (fun c => f c / IZR (uses c)) (expand l) = total f l.
Proof.
  intros f l H. induction l as [|c l IH]; [reflexivity|]. inversion H as [|? ? [[Hu _] _] Hl]; subst.
  unfold expand. simpl. fold (expand l). rewrite total_app, total_repeat, IH by auto.
  rewrite INR_IZR_INZ, Z2Nat.id by lia. field. apply not_0_IZR. lia.
Qed.

Lemma sum_fails_real : forall l, Q2R (sum_fails l) = total (fun c => Q2R (fails c)) l.
Proof.
  induction l as [|c l IH]; [simpl; unfold Q2R; simpl; lra|].
  unfold sum_fails, total in *. cbn [fold_right]. rewrite Q2R_red, Q2R_plus, IH. reflexivity.
Qed.

Definition pure_amount (c : cost) : R := match pure c with Some e => Q2R e | None => 0 end.

Lemma sum_pure_real : forall l e, sum_pure l = Some e ->
  Q2R e = total pure_amount l /\ Forall (fun c => pure c <> None) l.
Proof.
  induction l as [|c l IH]; intros e H; unfold sum_pure in H; cbn [fold_right] in H.
  - injection H as H. subst. split; [unfold Q2R; simpl; lra | constructor].
  - destruct (pure c) as [x|] eqn:E; [|discriminate]. fold (sum_pure l) in H. destruct (sum_pure l) as [y|]; [|discriminate].
    assert (e = Qred (x + y)) as -> by congruence. destruct (IH y eq_refl) as [H1 H2]. split.
    + rewrite Q2R_red, Q2R_plus, H1. unfold total. cbn [fold_right].
      replace (pure_amount c) with (Q2R x) by (unfold pure_amount; rewrite E; reflexivity). reflexivity.
    + constructor; auto. rewrite E. discriminate.
Qed.

Lemma order_sum_real : forall k l, IZR (order_sum k l) = total (fun c => IZR (nth k (renyi c) 0%Z)) l.
Proof. intros k l. induction l as [|c l IH]; simpl; auto. rewrite plus_IZR, IH. reflexivity. Qed.

Definition spends (s : state) (l : list cost) : state := fold_left spend l s.

Lemma spends_pure : forall l s x, left_pure s = Some x -> Forall (fun c => pure c <> None) l ->
  left_pure (spends s l) = Some (x - total (fun c => pure_amount c / IZR (uses c)) l).
Proof.
  unfold spends. induction l as [|c l IH]; intros s x Hs Hl; simpl; [rewrite Hs; f_equal; lra|].
  inversion Hl as [|? ? Hc Hl']; subst. rewrite (IH _ (x - pure_amount c / IZR (uses c))); auto.
  - f_equal. lra.
  - simpl. rewrite Hs. unfold pure_use, pure_amount. destruct (pure c); [reflexivity | congruence].
Qed.

Lemma spends_orders : forall l s k,
  left_orders (spends s l) k = left_orders s k - total (fun c => renyi_use c k) l.
Proof.
  unfold spends. induction l as [|c l IH]; intros s k; simpl; [lra|]. rewrite IH. simpl. lra.
Qed.

Lemma spends_gaussian : forall l s, skip s = 0%nat ->
  skip (spends s l) = 0%nat /\ left_aside (spends s l) = left_aside s /\
  left_gaussian (spends s l) = fold_left (pay_use reserves) l (left_gaussian s).
Proof.
  unfold spends. induction l as [|c l IH]; intros s Hs; simpl; auto.
  destruct (IH (spend s c)) as (H1 & H2 & H3); [simpl; rewrite Hs; reflexivity|].
  rewrite H1, H2, H3. simpl. rewrite Hs. auto.
Qed.

Lemma spends_aside : forall l s, (length l <= skip s)%nat -> Forall (fun c => pure c <> None) l ->
  skip (spends s l) = (skip s - length l)%nat /\
  left_aside (spends s l) = left_aside s - total (fun c => pure_amount c / IZR (uses c)) l /\
  left_gaussian (spends s l) = left_gaussian s.
Proof.
  unfold spends. induction l as [|c l IH]; intros s Hs Hl; simpl in *; [repeat split; auto; [lia | lra]|].
  inversion Hl as [|? ? Hc Hl']; subst.
  destruct (IH (spend s c)) as (H1 & H2 & H3); auto; [simpl; lia|].
  rewrite H1, H2, H3. simpl. destruct (skip s) as [|m]; [lia|].
  unfold pure_use, pure_amount at 2. destruct (pure c) eqn:E; [|congruence].
  repeat split; auto. lra.
Qed.

Lemma expand_app : forall l m, expand (l ++ m) = expand l ++ expand m.
Proof. intros. unfold expand. apply flat_map_app. Qed.

Lemma expand_forall : forall (P : cost -> Prop) l, Forall P l -> Forall P (expand l).
Proof.
  intros P l H. induction l as [|c l IH]; simpl; [constructor|]. inversion H; subst.
  apply Forall_app. split; auto. apply Forall_forall. intros x Hx. apply repeat_spec in Hx. subst. auto.
Qed.

(* Which limits the first charge chose: used where delta is not zero. *)
Definition chosen (B : budget) (first : list cost) : limits * Q :=
  if Qeq_bool (delta B) 0 then (plain B, selection B) else choose reserves B first.

Definition aside_needs_pure (B : budget) :=
  set_aside (plain B) = false /\ set_aside (whole B) = false.

Lemma chosen_aside : forall B first, aside_needs_pure B -> set_aside (fst (chosen B first)) = true ->
  exists e, sum_pure first = Some e /\ fst (chosen B first) = aside B e.
Proof.
  intros B first [Hp Hw] H. unfold chosen, choose, choose_limits in *.
  destruct (Qeq_bool (delta B) 0); simpl in H; [congruence|].
  destruct (Qle_bool (sum_fails first) (selection B)); simpl in H; [|congruence].
  destruct (sum_pure first) as [e|]; simpl in H.
  - destruct (below e (epsilon B)); simpl in *.
    + match goal with |- context [if ?x then _ else _] => destruct x end; simpl in *; [|congruence].
      exists e. auto.
    + match goal with H : context [if ?x then _ else _] |- _ => destruct x end; simpl in *; congruence.
  - match goal with H : context [if ?x then _ else _] |- _ => destruct x end; simpl in *; congruence.
Qed.

Lemma admits_alive : forall B first rest, aside_needs_pure B -> Forall good (concat (first :: rest)) ->
  length (most_orders (fst (chosen B first))) = width ->
  (forall c k, In c (concat (first :: rest)) -> (0 <= nth k (renyi c) 0)%Z) ->
  admits reserves B (first :: rest) = true ->
  alive (fst (chosen B first)) (spends (begin B (fst (chosen B first)) first) (expand (concat (first :: rest)))) /\
  total fails_use (expand (concat (first :: rest))) <= Q2R (snd (chosen B first)).
Proof.
  intros B first rest Hn Hg Hw Hr H.
  pose proof (chosen_aside B first Hn) as Haside.
  unfold admits in H. fold (chosen B first) in H. destruct (chosen B first) as [l part]. simpl fst in *. simpl snd in *.
  apply andb_prop in H. destruct H as [Hf H]. split.
  2: { unfold fails_use. rewrite (total_expand (fun c => Q2R (fails c))), <- sum_fails_real by auto.
       apply Qle_Rle, Qle_bool_imp_le; auto. }
  set (all := concat (first :: rest)) in *.
  apply orb_prop in H. destruct H as [H|H].
  - destruct (sum_pure all) as [e|] eqn:E; [|discriminate]. left.
    destruct (sum_pure_real all e E) as [He Hp].
    rewrite (spends_pure _ _ (Q2R (epsilon B))); [|reflexivity|apply expand_forall; auto].
    eexists. split; [reflexivity|]. rewrite total_expand, <- He by auto.
    apply Qle_bool_imp_le, Qle_Rle in H. lra.
  - apply andb_prop in H. destruct H as [_ H]. unfold admits_trail in H.
    apply orb_prop in H. destruct H as [H|H].
    + right; left.
      destruct (gaussian_left reserves l (first :: rest)) as [u|] eqn:E; [|discriminate].
      unfold gaussian_left in E. unfold all. simpl concat. rewrite expand_app. unfold spends at 1 2.
      rewrite fold_left_app. fold (spends (begin B l first) (expand first)).
      fold (spends (spends (begin B l first) (expand first)) (expand (concat rest))).
      unfold all in Hg. simpl in Hg. apply Forall_app in Hg. destruct Hg as [Hg1 Hg2].
      assert (forall m, Forall good m -> Forall (good_cost reserves) m) as Hgood.
      { intros m Hm. eapply Forall_impl; [|apply Hm]. intros c [Hc _]. exact Hc. }
      destruct (set_aside l) eqn:A.
      * destruct (Haside eq_refl) as (e & Epure & _).
        destruct (sum_pure_real first e Epure) as [He Hp].
        assert (skip (begin B l first) = length (expand first)) as Hskip by (unfold begin; simpl; rewrite A; auto).
        destruct (spends_aside (expand first) (begin B l first)) as (S1 & S2 & S3);
          [lia | apply expand_forall; auto |].
        destruct (spends_gaussian (expand (concat rest)) (spends (begin B l first) (expand first)))
          as (_ & T2 & T3); [lia|].
        exists u. rewrite T2, T3, S2, S3. split.
        -- simpl. apply pay_uses; auto.
        -- rewrite total_expand, <- He by auto. unfold begin. simpl. rewrite Epure, A. lra.
      * destruct (spends_gaussian (expand first) (begin B l first)) as (S1 & S2 & S3);
          [unfold begin; simpl; rewrite A; auto|].
        destruct (spends_gaussian (expand (concat rest)) (spends (begin B l first) (expand first)))
          as (_ & T2 & T3); [auto|].
        exists u. rewrite T2, T3, S2, S3. split.
        -- simpl. destruct (pay reserves (Some (most_gaussian l)) first) as [b1|] eqn:E1;
             [|rewrite pay_cost_none in E; discriminate].
           rewrite (pay_uses reserves first _ b1) by auto. apply pay_uses; auto.
        -- unfold begin. simpl. rewrite A. destruct (sum_pure first); lra.
    + right; right. apply existsb_exists in H. destruct H as (k & Hk & H). apply in_seq in Hk.
      apply Z.leb_le in H. fold all in H. exists k. split; [lia|].
      assert (0 <= order_sum k all)%Z as Hpos.
      { clear -Hr. induction all as [|c m IH]; simpl; [lia|].
        assert (0 <= nth k (renyi c) 0)%Z by (apply Hr; left; auto).
        assert (0 <= order_sum k m)%Z by (apply IH; intros; apply Hr; right; auto). lia. }
      split; [apply Z.leb_le; lia|].
      rewrite spends_orders. unfold begin. simpl left_orders.
      assert (total (fun c => renyi_use c k) (expand all) = IZR (order_sum k all) / unit) as ->.
      { unfold renyi_use. rewrite (total_expand (fun c => IZR (nth k (renyi c) 0%Z) / unit)) by auto.
        rewrite order_sum_real. clear -unit_pos. induction all as [|c m IH]; simpl; [field; lra|]. rewrite IH. field. lra. }
      apply IZR_le in H.
      assert (IZR (order_sum k all) / unit <= IZR (nth k (most_orders l) (-1)%Z) / unit).
      { apply Rmult_le_compat_r; auto. left. apply Rinv_0_lt_compat; auto. }
      lra.
Qed.

(* ---- Failures on a path ---- *)
Lemma total_nonneg : forall f l, Forall (fun c => 0 <= f c) l -> 0 <= total f l.
Proof. intros f l H. induction H; simpl; lra. Qed.

Lemma fails_use_nonneg : forall c, good c -> 0 <= fails_use c.
Proof.
  intros c [[Hu _] Hf]. unfold fails_use. apply Rmult_le_pos; auto. left. apply Rinv_0_lt_compat.
  apply (IZR_lt 0). lia.
Qed.

Fixpoint failing (part : R) (spent : R) (t : tree) : Prop :=
  match t with
  | Stop _ _ => spent <= part
  | Free n p next => chances n p /\ forall i, (i < n)%nat -> failing part spent (next i)
  | Use c n p q p' q' next => 0 <= fails_use c /\ chances n p /\ chances n q /\ chances n p' /\ chances n q' /\
      (forall i, (i < n)%nat -> (1 - fails_use c) * p i <= p' i /\ (1 - fails_use c) * q i <= q' i) /\
      forall i, (i < n)%nat -> failing part (spent + fails_use c) (next i)
  end.

Lemma outcomes : forall n p, chances n p -> (0 < n)%nat.
Proof. intros n p [H _]. destruct n; [simpl in H; lra | lia]. Qed.

Lemma failing_spent : forall t part spent, failing part spent t -> spent <= part.
Proof.
  induction t as [|n p next IH|c n p q p' q' next IH]; intros part spent H; simpl in H; auto.
  { destruct H as (Hp & H). apply (IH 0%nat part spent), H, (outcomes n p Hp). }
  destruct H as (Hf & Hp & _ & _ & _ & _ & H). pose proof (outcomes n p Hp) as Hn.
  specialize (IH 0%nat part (spent + fails_use c) (H 0%nat Hn)). lra.
Qed.

Lemma chance_nonneg : forall t part spent w event, failing part spent t -> 0 <= chance w event t.
Proof.
  induction t as [|n p next IH|c n p q p' q' next IH]; intros part spent w event H; simpl in *.
  - destruct (event inside); lra.
  - destruct H as ([_ Hp] & H). apply sum_nonneg. intros i Hi. apply Rmult_le_pos; [auto | eapply IH; eauto].
  - destruct H as (_ & [_ Hp] & [_ Hq] & [_ Hp'] & [_ Hq'] & _ & H).
    apply sum_nonneg. intros i Hi. apply Rmult_le_pos; [destruct w; auto | eapply IH; eauto].
Qed.

Lemma chance_total : forall t part spent w, failing part spent t ->
  chance w (fun x => x) t + chance w negb t = 1.
Proof.
  induction t as [|n p next IH|c n p q p' q' next IH]; intros part spent w H; simpl in *.
  - destruct inside; simpl; lra.
  - destruct H as ([Hp _] & H). rewrite <- sum_plus, <- Hp. apply sum_ext. intros i Hi.
    rewrite <- Rmult_plus_distr_l, (IH i part spent); auto. lra.
  - destruct H as (_ & [Hp _] & [Hq _] & [Hp' _] & [Hq' _] & _ & H). rewrite <- sum_plus.
    rewrite (sum_ext n _ (match w with Held1 => p | Held2 => q | Real1 => p' | Real2 => q' end)).
    + destruct w; auto.
    + intros i Hi. rewrite <- Rmult_plus_distr_l, (IH i part (spent + fails_use c)); auto. lra.
Qed.

(* What cannot fail keeps all but the failures of its chance. *)
Lemma held_kept : forall t part spent (w : bool) event, failing part spent t -> 0 <= spent -> part <= 1 ->
  (1 - (part - spent)) * chance (if w then Held1 else Held2) event t <= chance (if w then Real1 else Real2) event t.
Proof.
  induction t as [|n p next IH|c n p q p' q' next IH]; intros part spent w event H Hs Hp1.
  - simpl in *. destruct (event inside); lra.
  - simpl in *. destruct H as ([_ Hp] & H). rewrite <- sum_scale. apply sum_le. intros i Hi.
    pose proof (IH i part spent w event (H i Hi) Hs Hp1). specialize (Hp i Hi).
    replace ((1 - (part - spent)) * (p i * chance (if w then Held1 else Held2) event (next i)))
      with (p i * ((1 - (part - spent)) * chance (if w then Held1 else Held2) event (next i))) by ring.
    apply Rmult_le_compat_l; auto.
  - simpl in *. pose proof H as H0. destruct H as (Hf & Hp & Hq & Hp' & Hq' & Hfail & H).
    rewrite <- sum_scale. apply sum_le. intros i Hi.
    pose proof (failing_spent _ _ _ (H i Hi)) as Hsp.
    pose proof (IH i part (spent + fails_use c) w event (H i Hi) ltac:(lra) Hp1) as IHi.
    pose proof (chance_nonneg _ _ _ (if w then Held1 else Held2) event (H i Hi)) as Hc.
    set (x := chance (if w then Held1 else Held2) event (next i)) in *.
    set (y := chance (if w then Real1 else Real2) event (next i)) in *.
    destruct (Hfail i Hi) as [F1 F2].
    assert (forall h r, 0 <= h -> 0 <= r -> (1 - fails_use c) * h <= r ->
      (1 - (part - spent)) * (h * x) <= r * y) as Hone.
    { intros h r Hh Hr Hhr. set (f := fails_use c) in *. set (rest := part - (spent + f)) in *.
      replace (part - spent) with (rest + f) by (unfold rest; lra).
      assert (0 <= rest <= 1) by (unfold rest; lra).
      apply Rle_trans with (r * ((1 - rest) * x)); [|apply Rmult_le_compat_l; auto].
      assert (0 <= (1 - rest) * x) by (apply Rmult_le_pos; lra).
      apply Rle_trans with ((1 - f) * h * ((1 - rest) * x)); [|apply Rmult_le_compat_r; auto].
      assert (0 <= h * x) by (apply Rmult_le_pos; auto).
      assert (0 <= rest * f) by (apply Rmult_le_pos; lra).
      replace ((1 - f) * h * ((1 - rest) * x)) with ((1 - f) * (1 - rest) * (h * x)) by ring.
      apply Rmult_le_compat_r; auto. nra. }
    destruct Hp as [_ Hp]; destruct Hq as [_ Hq]; destruct Hp' as [_ Hp']; destruct Hq' as [_ Hq'].
    destruct w; apply Hone; auto.
Qed.

(* ---- The theorem ---- *)
(* What a budget's limits convert to, at the parts of delta, is what the budget says. *)
Definition start (B : budget) (l : limits) (apart : R) : R :=
  gaussian (IZR (most_gaussian l) / unit) 1 (exp (Q2R (epsilon B) - apart)) +
  sum width (fun k => if order_used l k
    then renyi_potential (orders k) (IZR (nth k (most_orders l) (-1)%Z) / unit) 1 (exp (Q2R (epsilon B))) else 0).

Record sound (B : budget) : Prop := {
  sound_selection : 0 <= Q2R (selection B) <= Q2R (delta B) /\ Q2R (delta B) <= 1;
  sound_flags : aside_needs_pure B;
  sound_plain : Q2R (delta B) > 0 -> start B (plain B) 0 <= Q2R (delta B) - Q2R (selection B);
  sound_aside : Q2R (delta B) > 0 -> forall e, below e (epsilon B) = true -> set_aside (aside B e) = true ->
    start B (aside B e) (Q2R e) <= Q2R (delta B) - Q2R (selection B);
  sound_aside_plain : Q2R (delta B) > 0 -> forall e, below e (epsilon B) = true -> set_aside (aside B e) = false ->
    start B (aside B e) 0 <= Q2R (delta B) - Q2R (selection B);
  sound_whole : Q2R (delta B) > 0 -> start B (whole B) 0 <= Q2R (delta B);
  sound_units : forall l, l = plain B \/ l = whole B \/ (exists e, below e (epsilon B) = true /\ l = aside B e) ->
    (0 <= most_gaussian l)%Z /\ length (most_orders l) = width }.

Lemma chosen_one : forall B first, fst (chosen B first) = plain B \/ fst (chosen B first) = whole B \/
  exists e, below e (epsilon B) = true /\ fst (chosen B first) = aside B e.
Proof.
  intros B first. unfold chosen, choose, choose_limits.
  repeat match goal with |- context [if ?x then _ else _] => destruct x eqn:?
    | |- context [match sum_pure ?x with _ => _ end] => destruct (sum_pure x) end; simpl; eauto.
Qed.

Lemma kept_parts : forall B first t path, sound B ->
  (forall c k, good c -> (0 <= nth k (renyi c) 0)%Z) ->
  kept B first path t ->
  ends_alive (fst (chosen B first)) (spends (begin B (fst (chosen B first)) first) path) t /\
  failing (Q2R (snd (chosen B first))) (total fails_use path) t.
Proof.
  intros B first t path HB Hr. revert path.
  assert (length (most_orders (fst (chosen B first))) = width) as Hw by (apply (sound_units B HB), chosen_one).
  induction t as [inside h|n p next IH|c n p q p' q' next IH]; intros path H; simpl in H.
  2: { destruct H as (Hp & H). split; simpl; (split; [exact Hp|]); intros i Hi; apply (IH i path); auto. }
  - destruct H as (rest & -> & -> & Hg & Ha).
    destruct (admits_alive B first rest (sound_flags B HB) Hg Hw) as [H1 H2]; auto.
    intros c k Hin. apply Hr. rewrite Forall_forall in Hg. auto.
  - destruct H as (Hc & V & Hp' & Hq' & Hf & H).
    assert (forall i, (i < n)%nat -> ends_alive (fst (chosen B first))
        (spend (spends (begin B (fst (chosen B first)) first) path) c) (next i) /\
      failing (Q2R (snd (chosen B first))) (total fails_use path + fails_use c) (next i)) as Hi.
    { intros i Hi. destruct (IH i (path ++ [c]) (H i Hi)) as [H1 H2].
      unfold spends in *. rewrite fold_left_app in H1. rewrite total_app in H2. simpl in H1, H2.
      rewrite Rplus_0_r in H2. auto. }
    split; simpl.
    + split; [exact Hc|]. split; [exact V|]. intros i Hn. apply Hi; auto.
    + split; [apply fails_use_nonneg; auto|]. split; [apply V|]. split; [apply V|].
      split; [exact Hp'|]. split; [exact Hq'|]. split; [exact Hf|]. intros i Hn. apply Hi; auto.
Qed.

Lemma start_potential : forall B first, sound B ->
  sane (begin B (fst (chosen B first)) first) /\
  all_potential (fst (chosen B first)) (begin B (fst (chosen B first)) first) 1 (exp (Q2R (epsilon B))) <=
    start B (fst (chosen B first))
      (match sum_pure first with Some e => if set_aside (fst (chosen B first)) then Q2R e else 0 | None => 0 end).
Proof.
  intros B first HB. split.
  - unfold sane, begin. simpl. apply (sound_units B HB), chosen_one.
  - unfold all_potential, begin, start, beside. simpl. rewrite pure_start.
    match goal with |- context [exp (- ?x)] => set (apart := x) end.
    rewrite <- exp_plus. replace (Q2R (epsilon B) + - apart) with (Q2R (epsilon B) - apart) by lra. lra.
Qed.

(* Whatever a ledger admits is (epsilon, delta)-private: for every pair of neighbouring tables and every adaptive interaction
   with them, every event of the transcript has P <= e^epsilon P' + delta; failures included, where delta is above zero. *)
Theorem ledger_private_from_first : forall B first t, sound B -> Q2R (delta B) > 0 ->
  (forall c k, good c -> (0 <= nth k (renyi c) 0)%Z) ->
  kept B first [] t ->
  chance Real1 (fun x => x) t <= exp (Q2R (epsilon B)) * chance Real2 (fun x => x) t + Q2R (delta B).
Proof.
  intros B first t HB Hd Hr Hk. destruct (kept_parts B first t [] HB Hr Hk) as [Ha Hf].
  destruct (start_potential B first HB) as [Hs Hstart]. simpl in Ha, Hf.
  set (l := fst (chosen B first)) in *. set (part := Q2R (snd (chosen B first))) in *.
  pose proof (exp_pos (Q2R (epsilon B))) as Hexp.
  pose proof (potential l t (begin B l first) 1 (exp (Q2R (epsilon B))) Ha Hs ltac:(lra) ltac:(lra) ltac:(lra)) as HP.
  assert (0 <= part <= 1 /\ part <= Q2R (delta B) /\
    all_potential l (begin B l first) 1 (exp (Q2R (epsilon B))) <= Q2R (delta B) - part) as (Hp1 & Hpd & Hall).
  { destruct HB as [[Hsel Hd1] [Fp Fw] Sp Sa Sap Sw _]. specialize (Sp Hd). specialize (Sa Hd). specialize (Sap Hd).
    specialize (Sw Hd). assert (Q2R 0 = 0) as Q0 by (unfold Q2R; simpl; lra).
    unfold l, part, chosen in *. destruct (Qeq_bool (delta B) 0) eqn:E.
    - apply Qeq_bool_eq, Qeq_eqR in E. lra.
    - unfold choose, choose_limits in *.
      destruct (Qle_bool (sum_fails first) (selection B)); cbn [fst snd] in *.
      + destruct (sum_pure first) as [e|] eqn:Es; cbn [fst snd] in *.
        * destruct (below e (epsilon B)) eqn:Eb; cbn [fst snd] in *.
          -- match type of Hstart with context [if ?x then Some (aside _ _) else _] => destruct x end; cbn [fst snd] in *.
             ++ destruct (set_aside (aside B e)) eqn:A; cbv zeta in *; cbn [fst snd] in *; rewrite ?A in Hstart;
                  [specialize (Sa e Eb A) | specialize (Sap e Eb A)]; lra.
             ++ cbv zeta in *; cbn [fst snd] in *. rewrite ?Fp in Hstart. lra.
          -- match type of Hstart with context [if ?x then Some _ else _] => destruct x end; cbn [fst snd] in *;
               rewrite ?Fp, ?Fw in Hstart; lra.
        * match type of Hstart with context [if ?x then Some _ else _] => destruct x end; cbn [fst snd] in *; lra.
      + destruct (sum_pure first) as [e|] eqn:Es; rewrite ?Fw in Hstart; lra. }
  assert (chance Real1 (fun x => x) t <= part + (1 - part) * chance Held1 (fun x => x) t) as H1.
  { pose proof (chance_total t part 0 Real1 Hf). pose proof (chance_total t part 0 Held1 Hf).
    pose proof (held_kept t part 0 true negb Hf ltac:(lra) ltac:(lra)) as H2. simpl in H2. nra. }
  assert ((1 - part) * chance Held2 (fun x => x) t <= chance Real2 (fun x => x) t) as H2.
  { pose proof (held_kept t part 0 false (fun x => x) Hf ltac:(lra) ltac:(lra)) as H2. simpl in H2. nra. }
  pose proof (chance_nonneg t part 0 Held2 (fun x => x) Hf).
  apply failures_once with (R := chance Held1 (fun x => x) t) (R' := chance Held2 (fun x => x) t) (s := part); auto.
  lra.
Qed.

(* The same where the first charge, too, is chosen on seeing answers that are alike from both tables: so it is for an individual
   of one period of a window, whose charges come after those of other periods. *)
Fixpoint begins (B : budget) (t : tree) : Prop :=
  match t with
  | Free n p next => chances n p /\ forall i, (i < n)%nat -> begins B (next i)
  | _ => exists first, kept B first [] t
  end.

Theorem ledger_private : forall B t, sound B -> Q2R (delta B) > 0 ->
  (forall c k, good c -> (0 <= nth k (renyi c) 0)%Z) ->
  begins B t ->
  chance Real1 (fun x => x) t <= exp (Q2R (epsilon B)) * chance Real2 (fun x => x) t + Q2R (delta B).
Proof.
  intros B t HB Hd Hr. induction t as [inside h|n p next IH|c n p q p' q' next IH]; intros H.
  1, 3: destruct H as (first & H); apply (ledger_private_from_first B first); auto.
  destruct H as ([Hp1 Hp] & H). simpl.
  apply Rle_trans with (sum n (fun i => p i * (exp (Q2R (epsilon B)) * chance Real2 (fun x => x) (next i) + Q2R (delta B)))).
  - apply sum_le. intros i Hi. apply Rmult_le_compat_l; auto.
  - rewrite (sum_ext n _ (fun i => exp (Q2R (epsilon B)) * (p i * chance Real2 (fun x => x) (next i)) + Q2R (delta B) * p i))
      by (intros; ring). rewrite sum_plus, !sum_scale, Hp1. lra.
Qed.

(* Without delta the pure rule alone admits, and nothing may fail. *)
Theorem pure_ledger_private : forall B first t, sound B -> Q2R (delta B) = 0 ->
  (forall c k, good c -> (0 <= nth k (renyi c) 0)%Z) ->
  kept B first [] t ->
  chance Real1 (fun x => x) t <= exp (Q2R (epsilon B)) * chance Real2 (fun x => x) t.
Proof.
  intros B first t HB Hd Hr Hk. destruct (kept_parts B first t [] HB Hr Hk) as [_ Hf].
  assert (Q2R (snd (chosen B first)) = 0) as Hpart.
  { unfold chosen. assert (Qeq_bool (delta B) 0 = true) as ->.
    { apply Qeq_eq_bool, eqR_Qeq. rewrite Hd. unfold Q2R. simpl. lra. }
    destruct (sound_selection B HB). simpl. lra. }
  rewrite Hpart in Hf.
  assert (forall t path s, kept B first path t -> left_pure s = left_pure (spends (begin B (plain B) first) path) ->
      forall a b, 0 <= a -> 0 <= b ->
      a * chance Held1 (fun x => x) t - b * chance Held2 (fun x => x) t <=
        match left_pure s with Some l => pure_potential l a b | None => 0 end) as H.
  { clear t Hk Hf Hpart. induction t as [inside h|n p next IH|c n p q p' q' next IH]; intros path s Hk Hs a b Ha Hb.
    2: { simpl in Hk. destruct Hk as ([Hp1 Hp] & Hk). simpl chance. rewrite <- !sum_scale, <- sum_minus.
      apply Rle_trans with (sum n (fun i => match left_pure s with Some l => pure_potential l a b | None => 0 end * p i));
        [|rewrite sum_scale, Hp1; lra].
      apply sum_le. intros i Hi. specialize (Hp i Hi).
      replace (a * (p i * chance Held1 (fun x => x) (next i)) - b * (p i * chance Held2 (fun x => x) (next i)))
        with (a * p i * chance Held1 (fun x => x) (next i) - b * p i * chance Held2 (fun x => x) (next i)) by ring.
      replace (match left_pure s with Some l => pure_potential l a b | None => 0 end * p i)
        with (match left_pure s with Some l => pure_potential l (a * p i) (b * p i) | None => 0 end)
        by (destruct (left_pure s); [apply pure_scales; auto | ring]).
      apply (IH i path); auto; apply Rmult_le_pos; auto. }
    - simpl in Hk. destruct Hk as (rest & -> & -> & Hg & Hadm). unfold admits in Hadm.
      assert (Qeq_bool (delta B) 0 = true) as E.
      { apply Qeq_eq_bool, eqR_Qeq. rewrite Hd. unfold Q2R. simpl. lra. }
      rewrite E in Hadm. simpl negb in Hadm. rewrite andb_false_l, orb_false_r in Hadm.
      apply andb_prop in Hadm. destruct Hadm as [_ Hadm].
      destruct (sum_pure (concat (first :: rest))) as [e|] eqn:Ee; [|discriminate].
      destruct (sum_pure_real _ e Ee) as [He Hp].
      rewrite Hs, (spends_pure _ _ (Q2R (epsilon B))); [|reflexivity|apply expand_forall; auto].
      rewrite total_expand, <- He by auto. apply Qle_bool_imp_le, Qle_Rle in Hadm.
      pose proof (pure_stop (Q2R (epsilon B) - Q2R e) a b ltac:(lra) Hb).
      pose proof (pure_nonneg (Q2R (epsilon B) - Q2R e) a b). simpl. destruct inside; lra.
    - simpl in Hk. destruct Hk as (Hc & V & _ & _ & _ & Hk). simpl chance. rewrite <- !sum_scale, <- sum_minus.
      destruct (private_first _ _ _ _ V) as [_ Hp]. destruct (private_second _ _ _ _ V) as [_ Hq].
      apply Rle_trans with (sum n (fun i => match left_pure (spend s c) with
        Some l => pure_potential l (a * p i) (b * q i) | None => 0 end)).
      + apply sum_le. intros i Hi.
        replace (a * (p i * chance Held1 (fun x => x) (next i)) - b * (q i * chance Held2 (fun x => x) (next i)))
          with (a * p i * chance Held1 (fun x => x) (next i) - b * q i * chance Held2 (fun x => x) (next i)) by ring.
        apply (IH i (path ++ [c])); auto; [|apply Rmult_le_pos; auto|apply Rmult_le_pos; auto].
        unfold spends. rewrite fold_left_app. simpl. fold (spends (begin B (plain B) first) path). rewrite Hs. auto.
      + simpl. destruct (left_pure s) as [l|]; [|rewrite sum_zero by auto; lra].
        destruct (pure_use c) as [e|] eqn:E; [|rewrite sum_zero by auto; apply pure_nonneg].
        apply pure_step; auto; try apply V; auto. }
  pose proof (H t [] (begin B (plain B) first) Hk eq_refl 1 (exp (Q2R (epsilon B))) ltac:(lra)
    (Rlt_le _ _ (exp_pos _))) as HP.
  simpl in HP. rewrite pure_start in HP. simpl in Hf.
  pose proof (chance_total t 0 0 Real1 Hf). pose proof (chance_total t 0 0 Held1 Hf).
  pose proof (held_kept t 0 0 true negb Hf ltac:(lra) ltac:(lra)) as F1.
  pose proof (held_kept t 0 0 false (fun x => x) Hf ltac:(lra) ltac:(lra)) as F2. simpl in F1, F2.
  pose proof (exp_pos (Q2R (epsilon B))). nra.
Qed.
End Meaning.
