(* The door and the ledger as a transition system: processes that ask, charge, read, store, crash and go on, in any order.

   A step is what one process does without another in between: a transaction of the ledger, or a reading of the records.
   Costs are of any type C; `fits` says whether a budget admits a list of them, in their order. *)
Require Import ZArith List Bool Lia.
Import ListNotations.
Open Scope Z_scope.

(* ==== What is spent of each period: `SpentByPeriod` of cost/parallel.py ==== *)
Definition mem (p : Z) (l : list Z) : bool := existsb (Z.eqb p) l.

Section Periods.
Variable C : Type.

(* Charges of all periods, and groups of periods that the same charges read. *)
Record spent := Spent { others : list C; groups : list (list Z * list C) }.

Definition nothing : spent := Spent [] [].

(* Periods that are in none of the groups. *)
Definition unnamed (ps : list Z) (gs : list (list Z * list C)) : list Z :=
  filter (fun p => negb (existsb (fun g => mem p (fst g)) gs)) ps.

Definition not_empty (g : list Z * list C) : bool := match fst g with [] => false | _ => true end.

Definition add (s : spent) (c : C) (reads : option (list Z)) : spent :=
  match reads with
  | None => Spent (others s ++ [c]) (map (fun g => (fst g, snd g ++ [c])) (groups s))
  | Some ps => Spent (others s) (filter not_empty
      (flat_map (fun g => [(filter (fun p => mem p ps) (fst g), snd g ++ [c]); (filter (fun p => negb (mem p ps)) (fst g), snd g)])
        (groups s) ++ [(unnamed ps (groups s), others s ++ [c])]))
  end.

Definition find (s : spent) (reads : option (list Z)) : list (list C) :=
  match reads with
  | None => map snd (groups s) ++ [others s]
  | Some ps => map snd (filter (fun g => existsb (fun p => mem p ps) (fst g)) (groups s)) ++
      (match unnamed ps (groups s) with [] => [] | _ => [others s] end)
  end.

(* What was charged for a period. *)
Fixpoint of_groups (p : Z) (gs : list (list Z * list C)) (rest : list C) : list C :=
  match gs with [] => rest | g :: gs => if mem p (fst g) then snd g else of_groups p gs rest end.
Definition of_period (p : Z) (s : spent) : list C := of_groups p (groups s) (others s).

Definition reads_period (p : Z) (reads : option (list Z)) : bool :=
  match reads with None => true | Some ps => mem p ps end.

Lemma mem_In : forall p l, mem p l = true <-> In p l.
Proof.
  intros p l. unfold mem. rewrite existsb_exists. split.
  - intros (x & Hx & E). apply Z.eqb_eq in E. subst. auto.
  - intros H. exists p. split; auto. apply Z.eqb_refl.
Qed.

Lemma mem_filter : forall p f l, mem p (filter f l) = mem p l && f p.
Proof.
  intros p f l. induction l as [|x l IH]; simpl; auto.
  destruct (f x) eqn:E; simpl; rewrite IH; destruct (Z.eqb_spec p x) as [->|]; simpl; auto;
    rewrite E; destruct (mem x l); auto.
Qed.

Lemma of_filter : forall p gs rest, of_groups p (filter not_empty gs) rest = of_groups p gs rest.
Proof.
  intros p gs rest. induction gs as [|[ns s] gs IH]; simpl; auto.
  destruct ns as [|x ns]; simpl; auto. destruct ((p =? x) || mem p ns); auto.
Qed.

(* Each charge is counted for the periods that it reads, and for no other. *)
Theorem add_right : forall p s c reads,
  of_period p (add s c reads) = if reads_period p reads then of_period p s ++ [c] else of_period p s.
Proof.
  intros p s c reads. unfold of_period, add. destruct reads as [ps|]; simpl.
  - rewrite of_filter. unfold unnamed.
    assert (forall gs seen, (forall g, In g seen -> mem p (fst g) = false) -> of_groups p
      (flat_map (fun g => [(filter (fun p => mem p ps) (fst g), snd g ++ [c]); (filter (fun p => negb (mem p ps)) (fst g), snd g)]) gs ++
       [(filter (fun p => negb (existsb (fun g => mem p (fst g)) (seen ++ gs))) ps, others s ++ [c])]) (others s) =
      if mem p ps then of_groups p gs (others s) ++ [c] else of_groups p gs (others s)) as H.
    { induction gs as [|g gs IH]; intros seen Hs; simpl.
      - rewrite app_nil_r, mem_filter.
        assert (existsb (fun g => mem p (fst g)) seen = false) as ->.
        { apply not_true_is_false. intros E. apply existsb_exists in E. destruct E as (g & Hg & E). rewrite Hs in E; auto. discriminate. }
        simpl. rewrite andb_true_r. destruct (mem p ps); auto.
      - rewrite !mem_filter. destruct (mem p (fst g)) eqn:E; simpl.
        + destruct (mem p ps); simpl; auto.
        + specialize (IH (seen ++ [g])). rewrite <- app_assoc in IH. simpl in IH. apply IH.
          intros g' Hg'. apply in_app_or in Hg'. destruct Hg' as [Hg'|[->|[]]]; auto. }
    specialize (H (groups s) []). simpl in H. apply H. intros g [].
  - induction (groups s) as [|g gs IH]; simpl; auto. destruct (mem p (fst g)); auto.
Qed.

(* What a charge is compared with has everything that was charged for every period that it reads. *)
Theorem find_covers : forall p s reads, reads_period p reads = true -> In (of_period p s) (find s reads).
Proof.
  intros p s reads H. unfold of_period, find. destruct reads as [ps|]; simpl in H.
  - unfold unnamed.
    destruct (existsb (fun g => mem p (fst g)) (groups s)) eqn:E.
    + apply in_or_app. left. clear - E H. induction (groups s) as [|g gs IH]; simpl in *; [discriminate|].
      destruct (mem p (fst g)) eqn:Eg.
      * assert (existsb (fun p0 => mem p0 ps) (fst g) = true) as ->.
        { apply existsb_exists. exists p. split; auto. apply mem_In; auto. }
        left. auto.
      * simpl in E. destruct (existsb _ (fst g)); [right|]; auto.
    + apply in_or_app. right.
      assert (of_groups p (groups s) (others s) = others s) as ->.
      { clear - E. induction (groups s) as [|g gs IH]; simpl in *; auto. apply orb_false_elim in E. destruct E as [-> E]. auto. }
      destruct (filter _ ps) eqn:Ef; [|left; auto].
      assert (In p []) as []. rewrite <- Ef. apply filter_In. split; [apply mem_In; auto | rewrite E; auto].
  - apply in_or_app. induction (groups s) as [|g gs IH]; simpl; [right; left; auto|].
    destruct (mem p (fst g)); [left; left; auto|]. destruct IH; [left; right; auto | right; auto].
Qed.
End Periods.
Arguments others {C}. Arguments groups {C}. Arguments Spent {C}.

(* ==== The door ==== *)
Section Door.
Variable C : Type.
Variable fits : list C -> bool.                       (* the budget admits these costs, in their order *)
Variable share : Z -> option (list C -> bool).        (* what a person may spend, if less than all *)
Hypothesis fits_nothing : fits [] = true.
Hypothesis share_nothing : forall who admits, share who = Some admits -> admits [] = true.

Record charge := Charge { question : Z; of_version : Z; cost : C; reads : option (list Z); asked_by : option Z }.

Inductive phase :=
  | Idle
  | Took (q : Z)                             (* it is our turn *)
  | Fresh (q v : Z)                          (* nothing is stored of it, for this version of the tables *)
  | Under (q : Z) (n : nat) (kept : Z)       (* charge n is durable, and so are the parts of the answer so far *)
  | Holding (q : Z) (n : nat) (kept : Z).    (* exact values were read, and noise was added to them *)

Inductive event :=
  | DidCharge (n : nat) | DidRead (n : nat) | DidStore (n : nat) (x : Z) | DidAnswer (n : nat) (x : Z) | DidSee (n : nat) (x : Z).

Record state := State {
  charges : list charge; whole : spent C; each : Z -> spent C;
  answers : nat -> option Z; progress : nat -> option Z;
  phases : Z -> phase; version : Z; trace : list event }.

Definition start : state := State [] (nothing C) (fun _ => nothing C) (fun _ => None) (fun _ => None) (fun _ => Idle) 0 [].

Inductive op :=
  | Take (p q : Z) | Look (p : Z) | Spend (p : Z) (c : C) (r : option (list Z)) (who : option Z) | ReadRecords (p : Z)
  | Keep (p x : Z) | Finish (p x : Z) | Crash (p : Z) | Change (v : Z).

Definition holds (ph : phase) (q : Z) : bool :=
  match ph with Idle => false | Took q' | Fresh q' _ | Under q' _ _ | Holding q' _ _ => q' =? q end.

Definition put {A} (f : Z -> A) (k : Z) (a : A) : Z -> A := fun i => if i =? k then a else f i.
Definition put_n {A} (f : nat -> A) (k : nat) (a : A) : nat -> A := fun i => if Nat.eqb i k then a else f i.

Definition go (s : state) (p : Z) (ph : phase) : state :=
  State (charges s) (whole s) (each s) (answers s) (progress s) (put (phases s) p ph) (version s) (trace s).
Definition log (s : state) (es : list event) : state :=
  State (charges s) (whole s) (each s) (answers s) (progress s) (phases s) (version s) (es ++ trace s).

Fixpoint first_from {A} (n : nat) (l : list charge) (test : nat -> charge -> option A) : option A :=
  match l with [] => None | c :: l => match test n c with Some a => Some a | None => first_from (S n) l test end end.

Definition same (q v : Z) (c : charge) : bool := (question c =? q) && (of_version c =? v).

Definition find_answer (s : state) (q v : Z) : option (nat * Z) :=
  first_from 0 (charges s) (fun n c => if same q v c then option_map (pair n) (answers s n) else None).
Definition find_progress (s : state) (q v : Z) : option (nat * Z) :=
  first_from 0 (charges s) (fun n c => if same q v c then
    match answers s n with Some _ => None | None => option_map (pair n) (progress s n) end else None).

(* The check of a charge: `Ledger.charge`. *)
Definition allowed (s : state) (c : C) (r : option (list Z)) (who : option Z) : bool :=
  forallb (fun costs => fits (costs ++ [c])) (find C (whole s) r) &&
  match who with
  | None => true
  | Some w => match share w with None => true | Some admits => forallb (fun costs => admits (costs ++ [c])) (find C (each s w) r) end
  end.

Definition matches (found : option Z) (kept x : Z) : bool :=
  match found with None => false | Some y => (y =? kept) || (y =? x) end.

(* One step; what cannot be done changes nothing. With `locking`, those who ask the same wait for each other. *)
Definition step (locking : bool) (procs : list Z) (s : state) (o : op) : state :=
  match o with
  | Take p q => match phases s p with
      | Idle => if negb (mem p procs) || (locking && existsb (fun p' => holds (phases s p') q) procs) then s else go s p (Took q)
      | _ => s end
  | Look p => match phases s p with
      | Took q => match find_answer s q (version s) with
          | Some (n, x) => log (go s p Idle) [DidSee n x]
          | None => match find_progress s q (version s) with
              | Some (n, x) => go s p (Under q n x)
              | None => go s p (Fresh q (version s)) end end
      | _ => s end
  | Spend p c r who => match phases s p with
      | Fresh q v => if allowed s c r who then
            let n := length (charges s) in
            State (charges s ++ [Charge q v c r who]) (add C (whole s) c r)
              (match who with None => each s | Some w => put (each s) w (add C (each s w) c r) end)
              (answers s) (put_n (progress s) n (Some 0)) (put (phases s) p (Under q n 0)) (version s) (DidCharge n :: trace s)
          else go s p Idle
      | _ => s end
  | ReadRecords p => match phases s p with
      | Under q n k => match nth_error (charges s) n with
          | Some c => if of_version c =? version s then log (go s p (Holding q n k)) [DidRead n] else log (go s p Idle) [DidRead n]
          | None => s end
      | _ => s end
  | Keep p x => match phases s p with
      | Holding q n k => match answers s n with
          | Some _ => go s p Idle
          | None => if matches (progress s n) k x then
              State (charges s) (whole s) (each s) (answers s) (put_n (progress s) n (Some x)) (put (phases s) p (Under q n x))
                (version s) (DidSee n x :: DidStore n x :: trace s)
            else go s p Idle end
      | _ => s end
  | Finish p x => match phases s p with
      | Holding q n k => match answers s n with
          | Some y => if y =? x then log (go s p Idle) [DidSee n x] else go s p Idle
          | None => if matches (progress s n) k x then
              State (charges s) (whole s) (each s) (put_n (answers s) n (Some x)) (put_n (progress s) n None) (put (phases s) p Idle)
                (version s) (DidSee n x :: DidAnswer n x :: DidStore n x :: trace s)
            else go s p Idle end
      | _ => s end
  | Crash p => go s p Idle
  | Change v => State (charges s) (whole s) (each s) (answers s) (progress s) (phases s) v (trace s)
  end.

Definition runs (locking : bool) (procs : list Z) (ops : list op) : state := fold_left (step locking procs) ops start.

(* ---- First: nothing is read without a durable charge, nothing seen that is not stored, one answer to a charge. ---- *)
Fixpoint ordered (t : list event) : Prop :=
  match t with
  | [] => True
  | e :: t => (match e with
      | DidRead n => In (DidCharge n) t
      | DidSee n x => In (DidStore n x) t
      | DidStore n x => In (DidRead n) t
      | _ => True end) /\ ordered t
  end.

Record safe (s : state) : Prop := {
  safe_under : forall p q n k, phases s p = Under q n k \/ phases s p = Holding q n k -> In (DidCharge n) (trace s);
  safe_holding : forall p q n k, phases s p = Holding q n k -> In (DidRead n) (trace s);
  safe_answers : forall n x, answers s n = Some x <-> In (DidAnswer n x) (trace s);
  safe_stored : forall n x, answers s n = Some x -> In (DidStore n x) (trace s);
  safe_progress : forall n x, progress s n = Some x -> In (DidCharge n) (trace s);
  safe_order : ordered (trace s) }.

Lemma first_from_some : forall A (test : nat -> charge -> option A) l n a, first_from n l test = Some a ->
  exists i c, nth_error l i = Some c /\ test (n + i)%nat c = Some a.
Proof.
  intros A test l. induction l as [|c l IH]; intros n a H; simpl in H; [discriminate|].
  destruct (test n c) eqn:E.
  - injection H as <-. exists 0%nat, c. rewrite Nat.add_0_r. auto.
  - destruct (IH (S n) a H) as (i & c' & H1 & H2). exists (S i), c'. split; auto.
    replace (n + S i)%nat with (S n + i)%nat by lia. auto.
Qed.

Lemma first_from_none : forall A (test : nat -> charge -> option A) l n, first_from n l test = None ->
  forall i c, nth_error l i = Some c -> test (n + i)%nat c = None.
Proof.
  intros A test l. induction l as [|c l IH]; intros n H i c' Hi; simpl in H; [destruct i; discriminate|].
  destruct (test n c) eqn:E; [discriminate|]. destruct i as [|i]; simpl in Hi.
  - injection Hi as <-. rewrite Nat.add_0_r. auto.
  - replace (n + S i)%nat with (S n + i)%nat by lia. apply (IH (S n) H); auto.
Qed.

Ltac cases := repeat match goal with
  | H : context [put _ ?p _ ?p'] |- _ => unfold put in H
  | |- context [put _ _ _ _] => unfold put
  | H : context [put_n _ _ _ _] |- _ => unfold put_n in H
  | |- context [put_n _ _ _ _] => unfold put_n
  | H : context [if ?a =? ?b then _ else _] |- _ => destruct (Z.eqb_spec a b); subst
  | |- context [if ?a =? ?b then _ else _] => destruct (Z.eqb_spec a b); subst
  | H : context [if Nat.eqb ?a ?b then _ else _] |- _ => destruct (Nat.eqb_spec a b); subst
  | |- context [if Nat.eqb ?a ?b then _ else _] => destruct (Nat.eqb_spec a b); subst
  end.

Lemma go_idle : forall s p, safe s -> safe (go s p Idle).
Proof.
  intros s p [A B D E F O]. constructor; simpl; auto.
  - intros p' q n k H. cases; [destruct H; discriminate | eapply A; eauto].
  - intros p' q n k H. cases; [discriminate | eapply B; eauto].
Qed.

Theorem safe_step : forall locking procs s o, safe s -> safe (step locking procs s o).
Proof.
  intros locking procs s o S. pose proof S as [A B D E F O].
  destruct o as [p q|p|p c r who|p|p x|p x|p|v]; simpl.
  - destruct (phases s p) eqn:Hp; auto. destruct (_ || _); auto.
    constructor; simpl; auto; intros p' q' n k H; cases; try (destruct H; discriminate); try discriminate; eauto.
  - destruct (phases s p) eqn:Hp; auto.
    destruct (find_answer s q (version s)) as [[n x]|] eqn:Ha.
    + apply first_from_some in Ha. destruct Ha as (i & c & _ & Ht). simpl in Ht.
      destruct (same q (version s) c); [|discriminate]. destruct (answers s i) eqn:Ei; simpl in Ht; [|discriminate].
      injection Ht as <- <-. apply E in Ei.
      destruct (go_idle s p S) as [A' B' D' E' F' O']. constructor; simpl; auto.
      * intros; right; eapply A'; eauto.
      * intros; right; eapply B'; eauto.
      * intros n' x'. rewrite D. split; [right; auto | intros [H|H]; [discriminate|auto]].
      * intros n' x' H. right. apply (F n' x'); auto.
    + destruct (find_progress s q (version s)) as [[n x]|] eqn:Hf.
      * apply first_from_some in Hf. destruct Hf as (i & c & _ & Ht). simpl in Ht.
        destruct (same q (version s) c); [|discriminate]. destruct (answers s i); [discriminate|].
        destruct (progress s i) eqn:Ei; simpl in Ht; [|discriminate]. injection Ht as <- <-.
        constructor; simpl; auto; intros p' q' n' k H; cases; try discriminate; eauto.
        destruct H as [H|H]; [injection H as <- <- <-; eapply F; eauto | discriminate].
      * constructor; simpl; auto; intros p' q' n' k H; cases; try (destruct H; discriminate); try discriminate; eauto.
  - destruct (phases s p) eqn:Hp; auto. destruct (allowed s c r who); [|apply go_idle; auto].
    constructor; simpl; auto.
    + intros p' q' n k H. cases; [destruct H as [H|H]; [injection H as <- <- <-; auto | discriminate] | right; eapply A; eauto].
    + intros p' q' n k H. cases; [discriminate | right; eapply B; eauto].
    + intros n x. rewrite D. split; [right; auto | intros [H|H]; [discriminate | auto]].
    + intros n x H. cases; [left; auto | right; eapply F; eauto].
  - destruct (phases s p) as [| | |q n k|] eqn:Hp; auto. destruct (nth_error (charges s) n) as [c|]; auto.
    assert (In (DidCharge n) (trace s)) as Hn by (eapply A; eauto).
    destruct (of_version c =? version s); constructor; simpl; auto.
    all: try (intros n' x'; rewrite D; split; [right; auto | intros [H|H]; [discriminate | auto]]).
    all: try (intros n' x' H; right; first [eapply E; eauto; fail | eapply F; eauto; fail]).
    + intros p' q' n' k' H. cases; [destruct H as [H|H]; [discriminate | injection H as <- <- <-; auto] | right; eapply A; eauto].
    + intros p' q' n' k' H. cases; [injection H as <- <- <-; auto | right; eapply B; eauto].
    + intros p' q' n' k' H. cases; [destruct H; discriminate | right; eapply A; eauto].
    + intros p' q' n' k' H. cases; [discriminate | right; eapply B; eauto].
  - destruct (phases s p) as [| | | |q n k] eqn:Hp; auto. destruct (answers s n) eqn:Ea; [apply go_idle; auto|].
    destruct (matches _ _ _); [|apply go_idle; auto].
    assert (In (DidCharge n) (trace s)) as Hn by (eapply A; eauto). assert (In (DidRead n) (trace s)) as Hr by (eapply B; eauto).
    constructor; simpl; auto.
    + intros p' q' n' k' H. right; right. cases; [destruct H as [H|H]; [injection H as <- <- <-; auto | discriminate] | eapply A; eauto].
    + intros p' q' n' k' H. right; right. cases; [discriminate | eapply B; eauto].
    + intros n' x'. rewrite D. split; [right; auto | intros [H|[H|H]]; [discriminate | discriminate | auto]].
    + intros n' x' H. right; right. cases; [auto | eapply F; eauto].
  - destruct (phases s p) as [| | | |q n k] eqn:Hp; auto.
    assert (In (DidCharge n) (trace s)) as Hn by (eapply A; eauto). assert (In (DidRead n) (trace s)) as Hr by (eapply B; eauto).
    destruct (answers s n) as [y|] eqn:Ea.
    + destruct (Z.eqb_spec y x) as [->|]; [|apply go_idle; auto].
      destruct (go_idle s p S) as [A' B' D' E' F' O']. constructor; simpl; auto.
      * intros; right; eapply A'; eauto.
      * intros; right; eapply B'; eauto.
      * intros n' x'. rewrite D. split; [right; auto | intros [H|H]; [discriminate | auto]].
      * intros n' x' H. right. eapply F; eauto.
    + destruct (matches _ _ _); [|apply go_idle; auto]. constructor; simpl; auto.
      * intros p' q' n' k' H. right; right; right. cases; [destruct H; discriminate | eapply A; eauto].
      * intros p' q' n' k' H. right; right; right. cases; [discriminate | eapply B; eauto].
      * intros n' x'. cases.
        -- split; [intros H; injection H as <-; auto|].
           intros [H|[H|[H|H]]]; try discriminate; [injection H as <-; auto|]. apply D in H. congruence.
        -- rewrite D. split; [right; right; right; auto | intros [H|[H|[H|H]]]; try discriminate; auto].
           injection H as <- <-. congruence.
      * intros n' x' H. cases; [injection H as <-; auto | right; right; right; apply E; auto].
      * intros n' x' H. right; right; right. cases; [discriminate | eapply F; eauto].
  - apply go_idle; auto.
  - constructor; simpl; auto.
Qed.

Theorem always_safe : forall locking procs ops, safe (runs locking procs ops).
Proof.
  intros locking procs ops. unfold runs.
  assert (safe start) as H.
  { constructor; simpl; auto; try discriminate; [intros p q n k [H|H]; discriminate | intros n x; split; [discriminate | intros []]]. }
  revert H. generalize start. induction ops as [|o ops IH]; intros s H; simpl; auto. apply IH, safe_step, H.
Qed.

(* No records are read for a charge before it is durable, and no noisy value is seen before it is stored, under any
   interleaving of processes, crashes and changes of the records, whether or not equal questions wait for each other. *)
Theorem charge_before_read : forall locking procs ops newer older n,
  trace (runs locking procs ops) = newer ++ DidRead n :: older -> In (DidCharge n) older.
Proof.
  intros locking procs ops newer older n H. pose proof (safe_order _ (always_safe locking procs ops)) as O.
  rewrite H in O. clear H. induction newer as [|e newer IH]; simpl in O; destruct O as [O1 O2]; auto.
Qed.

Theorem stored_before_seen : forall locking procs ops newer older n x,
  trace (runs locking procs ops) = newer ++ DidSee n x :: older -> In (DidStore n x) older /\ In (DidRead n) older.
Proof.
  intros locking procs ops newer older n x H. pose proof (safe_order _ (always_safe locking procs ops)) as O.
  rewrite H in O. clear H. induction newer as [|e newer IH]; simpl in O; destruct O as [O1 O2]; auto.
  split; auto. clear - O1 O2. induction older as [|e older IH]; [destruct O1|]. simpl in O2. destruct O2 as [O2 O3].
  destruct O1 as [->|O1]; [right; auto | right; auto].
Qed.

(* A charge has one answer, whoever goes on with it. *)
Theorem one_answer : forall locking procs ops n x y,
  In (DidAnswer n x) (trace (runs locking procs ops)) -> In (DidAnswer n y) (trace (runs locking procs ops)) -> x = y.
Proof.
  intros locking procs ops n x y Hx Hy. pose proof (safe_answers _ (always_safe locking procs ops)) as D.
  apply D in Hx. apply D in Hy. congruence.
Qed.

(* ---- Second: for every period, and in every share, what was charged is admitted. ---- *)
Record within (s : state) : Prop := {
  within_whole : forall p, fits (of_period C p (whole s)) = true;
  within_share : forall w admits p, share w = Some admits -> admits (of_period C p (each s w)) = true }.

Theorem within_step : forall locking procs s o, within s -> within (step locking procs s o).
Proof.
  intros locking procs s o W. pose proof W as [A B].
  destruct o as [p q|p|p c r who|p|p x|p x|p|v]; simpl;
    try (repeat match goal with |- context [match ?x with _ => _ end] => destruct x end; try exact W; constructor; simpl; auto; fail).
  destruct (phases s p); auto. destruct (allowed s c r who) eqn:Ha; [|constructor; auto].
  unfold allowed in Ha. apply andb_prop in Ha. destruct Ha as [H1 H2]. rewrite forallb_forall in H1. constructor; simpl.
  - intros period. rewrite add_right. destruct (reads_period period r) eqn:Er; auto.
    apply H1. apply find_covers; auto.
  - intros w admits period Hw. destruct who as [who|]; [|apply (B w); auto]. unfold put.
    destruct (Z.eqb_spec w who) as [->|]; [|apply (B w); auto]. rewrite Hw in H2. rewrite forallb_forall in H2.
    rewrite add_right. destruct (reads_period period r) eqn:Er; [|apply (B who); auto]. apply H2. apply find_covers; auto.
Qed.

Theorem always_within : forall locking procs ops, within (runs locking procs ops).
Proof.
  intros locking procs ops. unfold runs.
  assert (within start) as H by (constructor; simpl; intros; [apply fits_nothing | eapply share_nothing; eauto]).
  revert H. generalize start. induction ops as [|o ops IH]; intros s H; simpl; auto. apply IH, within_step, H.
Qed.

(* The costs that a period is charged are those of the charges that read it, in their order. *)
Definition reading (period : Z) (l : list charge) : list C :=
  map cost (filter (fun c => reads_period period (reads c)) l).

Theorem period_pays : forall locking procs ops period,
  of_period C period (whole (runs locking procs ops)) = reading period (charges (runs locking procs ops)).
Proof.
  intros locking procs ops period. unfold runs.
  assert (of_period C period (whole start) = reading period (charges start)) as H by reflexivity.
  revert H. generalize start. induction ops as [|o ops IH]; intros s H; simpl; auto. apply IH.
  destruct o as [p q|p|p c r who|p|p x|p x|p|v]; simpl;
    try (repeat match goal with |- context [match ?x with _ => _ end] => destruct x end; exact H).
  destruct (phases s p); auto. destruct (allowed s c r who); auto. simpl.
  rewrite add_right, H. unfold reading. rewrite filter_app, map_app. simpl.
  destruct (reads_period period r); simpl; auto. rewrite app_nil_r. auto.
Qed.

(* ---- Third: where equal questions wait for each other, they are charged once. ---- *)
Record single (procs : list Z) (s : state) : Prop := {
  single_procs : forall p, phases s p <> Idle -> mem p procs = true;
  single_turn : forall p p' q, holds (phases s p) q = true -> holds (phases s p') q = true -> p = p';
  single_kept : forall n c, nth_error (charges s) n = Some c -> answers s n <> None \/ progress s n <> None;
  single_fresh : forall p q v, phases s p = Fresh q v -> forall n c, nth_error (charges s) n = Some c -> same q v c = false;
  single_once : forall i j c d, nth_error (charges s) i = Some c -> nth_error (charges s) j = Some d ->
    question c = question d -> of_version c = of_version d -> i = j }.

Lemma single_go : forall procs s p old ph, single procs s -> phases s p = old ->
  (forall q, holds ph q = true -> holds old q = true) -> old <> Idle ->
  (forall q v, ph = Fresh q v -> forall n c, nth_error (charges s) n = Some c -> same q v c = false) ->
  single procs (go s p ph).
Proof.
  intros procs s p old ph [A B D F O] <- Hph Hp Hf. constructor; simpl; auto.
  - intros p' H. cases; auto.
  - intros p1 p2 q H1 H2. cases; auto; try (apply (B _ _ q); auto).
  - intros p' q v H. cases; [apply Hf; auto | apply (F p' q v); auto].
Qed.

Theorem single_step : forall procs s o, single procs s -> single procs (step true procs s o).
Proof.
  intros procs s o S. pose proof S as [A B D F O].
  assert (forall p, single procs (go s p Idle)) as Hidle.
  { intros p. constructor; simpl; auto.
    - intros p' H. cases; [congruence | auto].
    - intros p1 p2 q H1 H2. cases; try discriminate; auto. apply (B _ _ q); auto.
    - intros p' q v H. cases; [discriminate | apply (F p' q v); auto]. }
  assert (forall p es, single procs (log (go s p Idle) es)) as Hlog.
  { intros p es. destruct (Hidle p) as [A' B' D' F' O']. constructor; auto. }
  destruct o as [p q|p|p c r who|p|p x|p x|p|v]; simpl.
  - destruct (phases s p) eqn:Hp; auto. destruct (mem p procs) eqn:Hm; simpl; auto.
    destruct (existsb (fun p' => holds (phases s p') q) procs) eqn:He; auto.
    assert (forall p', holds (phases s p') q = false) as Hfree.
    { intros p'. apply not_true_is_false. intros H. assert (phases s p' <> Idle) as Hn by (intros E; rewrite E in H; discriminate).
      apply A in Hn. apply mem_In in Hn.
      assert (existsb (fun p' => holds (phases s p') q) procs = true) by (apply existsb_exists; eauto). congruence. }
    constructor; simpl; auto.
    + intros p' H. cases; auto.
    + intros p1 p2 q' H1 H2. cases; auto; simpl in *; try (apply (B _ _ q'); auto);
        match goal with H : (q =? q') = true |- _ => apply Z.eqb_eq in H; subst end; rewrite Hfree in *; discriminate.
    + intros p' q' v H. cases; [discriminate | apply (F p' q' v); auto].
  - destruct (phases s p) eqn:Hp; auto. destruct (find_answer s q (version s)) as [[n x]|] eqn:Ha; [apply Hlog|].
    destruct (find_progress s q (version s)) as [[n x]|] eqn:Hf.
    + apply (single_go procs s p (Took q)); auto; discriminate.
    + apply (single_go procs s p (Took q)); auto; [discriminate|]. intros q' v' E n c Hc. injection E as <- <-.
      unfold find_answer in Ha. unfold find_progress in Hf.
      pose proof (first_from_none _ _ _ _ Ha n c Hc) as N1. pose proof (first_from_none _ _ _ _ Hf n c Hc) as N2.
      simpl in N1, N2. destruct (same q (version s) c); auto.
      destruct (D n c Hc) as [D1|D1]; destruct (answers s n); destruct (progress s n); simpl in *; try discriminate; congruence.
  - destruct (phases s p) eqn:Hp; auto. destruct (allowed s c r who); [|apply Hidle].
    constructor; simpl.
    + intros p' H. cases; [apply A; rewrite Hp; discriminate | auto].
    + intros p1 p2 q' H1 H2. cases; auto; simpl in *; try (apply (B _ _ q'); auto; rewrite Hp; auto).
    + intros n c' H. cases; [right; discriminate|].
      destruct (Nat.lt_ge_cases n (length (charges s))) as [L|L]; [rewrite nth_error_app1 in H by auto; apply (D n c'); auto|].
      rewrite nth_error_app2 in H by auto. destruct (n - length (charges s))%nat as [|m] eqn:E; [lia|]. destruct m; discriminate.
    + intros p' q' v' H n c' Hc. cases; [discriminate|].
      destruct (Nat.lt_ge_cases n (length (charges s))) as [L|L];
        [rewrite nth_error_app1 in Hc by auto; apply (F p' q' v' H n); auto|].
      rewrite nth_error_app2 in Hc by auto. destruct (n - length (charges s))%nat as [|m]; [|destruct m; discriminate].
      injection Hc as <-. unfold same. simpl. destruct (Z.eqb_spec q q') as [->|]; auto.
      exfalso. match goal with H : _ <> p |- _ => apply H | H : p <> _ |- _ => apply H; symmetry end. apply (B _ _ q'); [rewrite H | rewrite Hp]; simpl; apply Z.eqb_refl.
    + assert (forall i c', nth_error (charges s ++ [Charge q v c r who]) i = Some c' ->
        (nth_error (charges s) i = Some c' \/ (i = length (charges s) /\ c' = Charge q v c r who))) as Hcase.
      { intros i c' H. destruct (Nat.lt_ge_cases i (length (charges s))) as [L|L]; [rewrite nth_error_app1 in H by auto; auto|].
        rewrite nth_error_app2 in H by auto. destruct (i - length (charges s))%nat as [|m] eqn:E; [|destruct m; discriminate].
        injection H as <-. right. split; auto. lia. }
      intros i j c1 c2 H1 H2 Hq Hv. destruct (Hcase i c1 H1) as [K1|[-> ->]]; destruct (Hcase j c2 H2) as [K2|[-> ->]]; auto.
      * apply (O i j c1 c2); auto.
      * exfalso. pose proof (F p q v Hp i c1 K1) as N. unfold same in N. simpl in Hq, Hv. rewrite Hq, Hv, !Z.eqb_refl in N. discriminate.
      * exfalso. pose proof (F p q v Hp j c2 K2) as N. unfold same in N. simpl in Hq, Hv. rewrite <- Hq, <- Hv, !Z.eqb_refl in N. discriminate.
  - destruct (phases s p) as [| | |q n k|] eqn:Hp; auto. destruct (nth_error (charges s) n); auto.
    destruct (_ =? _); [|apply Hlog].
    assert (single procs (go s p (Holding q n k))) as [A' B' D' F' O'].
    { apply (single_go procs s p (Under q n k)); auto; discriminate. }
    constructor; auto.
  - destruct (phases s p) as [| | | |q n k] eqn:Hp; auto. destruct (answers s n); [apply Hidle|].
    destruct (matches _ _ _); [|apply Hidle]. constructor; simpl; auto.
    + intros p' H. cases; [apply A; rewrite Hp; discriminate | auto].
    + intros p1 p2 q' H1 H2. cases; auto; simpl in *; try (apply (B _ _ q'); auto; rewrite Hp; auto).
    + intros n' c' H. cases; [right; discriminate | apply (D n' c'); auto].
    + intros p' q' v' H. cases; [discriminate | apply (F p' q' v'); auto].
  - destruct (phases s p) as [| | | |q n k] eqn:Hp; auto. destruct (answers s n) as [y|] eqn:Ea.
    + destruct (y =? x); [apply Hlog | apply Hidle].
    + destruct (matches _ _ _); [|apply Hidle]. constructor; simpl; auto.
      * intros p' H. cases; [congruence | auto].
      * intros p1 p2 q' H1 H2. cases; try discriminate; auto. apply (B _ _ q'); auto.
      * intros n' c' H. cases; [left; discriminate | apply (D n' c'); auto].
      * intros p' q' v' H. cases; [discriminate | apply (F p' q' v'); auto].
  - apply Hidle.
  - constructor; simpl; auto.
Qed.

Theorem charged_once : forall procs ops i j c d,
  nth_error (charges (runs true procs ops)) i = Some c -> nth_error (charges (runs true procs ops)) j = Some d ->
  question c = question d -> of_version c = of_version d -> i = j.
Proof.
  intros procs ops. apply (single_once procs). unfold runs.
  assert (single procs start) as H.
  { constructor; simpl; try discriminate; try congruence.
    - intros n c H. destruct n; discriminate.
    - intros i j c d H. destruct i; discriminate. }
  revert H. generalize start. induction ops as [|o ops IH]; intros s H; simpl; auto. apply IH, single_step, H.
Qed.
End Door.
