(* Programs that draw random words, the law of what they return, and decisions that draw more words only if they must. *)
Require Import Reals Lra Lia Psatz ZArith List Bool.
From Sfumato Require Import Sums.
Import ListNotations.
Open Scope R_scope.

(* ---- Programs ---- *)
Inductive prog (A : Type) : Type := Ret (a : A) | Stuck | Draw (next : Z -> prog A).
Arguments Ret {A}. Arguments Stuck {A}. Arguments Draw {A}.

Fixpoint bind {A B : Type} (p : prog A) (f : A -> prog B) : prog B :=
  match p with Ret a => f a | Stuck => Stuck | Draw next => Draw (fun w => bind (next w) f) end.

(* What a program returns on given words, and the words that it leaves. *)
Fixpoint run {A : Type} (p : prog A) (words : list Z) : option (A * list Z) :=
  match p, words with
  | Ret a, _ => Some (a, words)
  | Draw next, w :: words => run (next w) words
  | _, _ => None
  end.

Section Words.
Variable word_bits : Z.
Hypothesis word_bits_pos : (0 < word_bits)%Z.

Definition count : nat := Z.to_nat (2 ^ word_bits).

Lemma count_Z : Z.of_nat count = (2 ^ word_bits)%Z.
Proof. unfold count. rewrite Z2Nat.id; auto. apply Z.pow_nonneg. lia. Qed.

Lemma count_pos : (0 < count)%nat.
Proof. assert (0 < 2 ^ word_bits)%Z by (apply Z.pow_pos_nonneg; lia). pose proof count_Z. lia. Qed.

Lemma count_R : INR count = IZR (2 ^ word_bits).
Proof. rewrite INR_IZR_INZ, count_Z. reflexivity. Qed.

(* Words are uniform: the chance that a program returns something in `event`, and that it asks for more than it may. *)
Fixpoint chance {A : Type} (p : prog A) (event : A -> bool) : R :=
  match p with
  | Ret a => if event a then 1 else 0
  | Stuck => 0
  | Draw next => mean count (fun i => chance (next (Z.of_nat i)) event)
  end.

Fixpoint stuck {A : Type} (p : prog A) : R :=
  match p with
  | Ret _ => 0
  | Stuck => 1
  | Draw next => mean count (fun i => stuck (next (Z.of_nat i)))
  end.

Lemma chance_nonneg : forall (A : Type) (p : prog A) event, 0 <= chance p event.
Proof.
  induction p as [a| |next IH]; intros event; simpl; [destruct (event a); lra | lra |].
  apply mean_nonneg. auto.
Qed.

Lemma chance_all : forall (A : Type) (p : prog A) event,
  chance p event + chance p (fun a => negb (event a)) + stuck p = 1.
Proof.
  induction p as [a| |next IH]; intros event; simpl; [destruct (event a); simpl; lra | lra |].
  rewrite <- !mean_plus, (mean_ext count _ (fun _ => 1)); auto. apply mean_const, count_pos.
Qed.

Lemma stuck_nonneg : forall (A : Type) (p : prog A), 0 <= stuck p.
Proof. induction p; simpl; try lra. apply mean_nonneg. auto. Qed.

(* Only one result of the first part can lead to the event. *)
Lemma bind_point : forall (A B : Type) (p : prog A) (f : A -> prog B) (is : A -> bool) x event,
  (forall a, is a = false -> chance (f a) event = 0) -> (forall a, is a = true -> chance (f a) event = x) ->
  chance (bind p f) event = chance p is * x.
Proof.
  intros A B p f is x event H0 H1. induction p as [a| |next IH]; simpl; [|lra|].
  - destruct (is a) eqn:E; [rewrite H1; auto; lra | rewrite H0; auto; lra].
  - rewrite (mean_ext count _ (fun i => chance (next (Z.of_nat i)) is * x)); [apply mean_scale_right | auto].
Qed.

(* The result of the first part leads to the event with chance x, or with chance y. *)
Lemma bind_two : forall (A B : Type) (p : prog A) (f : A -> prog B) (is : A -> bool) x y event,
  (forall a, is a = true -> chance (f a) event = x) -> (forall a, is a = false -> chance (f a) event = y) ->
  chance (bind p f) event = chance p is * x + chance p (fun a => negb (is a)) * y.
Proof.
  intros A B p f is x y event H1 H0. induction p as [a| |next IH]; simpl; [|lra|].
  - destruct (is a) eqn:E; simpl; [rewrite H1; auto; lra | rewrite H0; auto; lra].
  - rewrite <- !mean_scale_right, <- mean_plus. apply mean_ext. auto.
Qed.

(* ---- Comparing a uniform number with reals, by as many bits as it takes ----
   V is known by its first b bits, the whole number v. The event is that V lies in [L, U). *)
Definition clip (l u x : R) := Rmin (Rmax x l) u.
Definition width (b : Z) : R := IZR (2 ^ b).
(* the part of the cell of v in which the event is *)
Definition share (L U : R) (b v : Z) : R :=
  clip (L * width b) (U * width b) (IZR v + 1) - clip (L * width b) (U * width b) (IZR v).
(* whether a real number is in the cell of v *)
Definition in_cell (X : R) (b v : Z) : R :=
  if Rle_dec (IZR v) (X * width b) then if Rlt_dec (X * width b) (IZR v + 1) then 1 else 0 else 0.

Lemma width_pos : forall b, (0 <= b)%Z -> 0 < width b.
Proof. intros. unfold width. apply (IZR_lt 0). apply Z.pow_pos_nonneg; lia. Qed.

Lemma width_more : forall b, (0 <= b)%Z -> width (b + word_bits) = width b * INR count.
Proof. intros. unfold width. rewrite count_R, <- mult_IZR. f_equal. apply Z.pow_add_r; lia. Qed.

Lemma clip_scale : forall l u x c, 0 <= c -> clip (l * c) (u * c) (x * c) = clip l u x * c.
Proof.
  intros l u x c Hc. unfold clip, Rmin, Rmax.
  repeat destruct Rle_dec; try nra; try (destruct Hc as [Hc|Hc]; [nra | subst; lra]).
Qed.

Lemma share_bounds : forall L U b v, 0 <= share L U b v <= 1.
Proof. intros. unfold share, clip, Rmin, Rmax. repeat destruct Rle_dec; lra. Qed.

Lemma share_inside : forall L U b v, L * width b <= IZR v -> IZR v + 1 <= U * width b -> share L U b v = 1.
Proof. intros. unfold share, clip, Rmin, Rmax. repeat destruct Rle_dec; lra. Qed.

Lemma share_outside : forall L U b v, (0 <= b)%Z -> L <= U ->
  IZR v + 1 <= L * width b \/ U * width b <= IZR v -> share L U b v = 0.
Proof.
  intros L U b v Hb HLU H. pose proof (width_pos b Hb).
  assert (L * width b <= U * width b) by (apply Rmult_le_compat_r; lra).
  unfold share, clip, Rmin, Rmax. repeat destruct Rle_dec; lra.
Qed.

Lemma telescope : forall n (f : nat -> R), sum n (fun i => f (S i) - f i) = f n - f 0%nat.
Proof. induction n as [|n IH]; intros f; simpl; [lra|]. rewrite IH. lra. Qed.

Lemma share_split : forall L U b v, (0 <= b)%Z ->
  mean count (fun i => share L U (b + word_bits) (v * 2 ^ word_bits + Z.of_nat i)) = share L U b v.
Proof.
  intros L U b v Hb. unfold mean.
  set (c := clip (L * width (b + word_bits)) (U * width (b + word_bits))).
  set (g := fun i => c (IZR v * INR count + INR i)).
  rewrite (sum_ext count _ (fun i => g (S i) - g i)).
  - rewrite (telescope count g). unfold g, c, share. rewrite width_more by auto.
    replace (IZR v * INR count + INR count) with ((IZR v + 1) * INR count) by ring.
    replace (IZR v * INR count + INR 0) with (IZR v * INR count) by (simpl; ring).
    rewrite <- !Rmult_assoc, !clip_scale by (apply pos_INR).
    field. apply not_0_INR. pose proof count_pos. lia.
  - intros i _. unfold share, g, c. rewrite plus_IZR, mult_IZR, <- count_R, <- INR_IZR_INZ, S_INR.
    f_equal. f_equal. ring.
Qed.

Lemma in_cell_bounds : forall X b v, 0 <= in_cell X b v <= 1.
Proof. intros. unfold in_cell. repeat destruct Rle_dec; repeat destruct Rlt_dec; lra. Qed.

Lemma in_cell_split : forall X b v, (0 <= b)%Z ->
  mean count (fun i => in_cell X (b + word_bits) (v * 2 ^ word_bits + Z.of_nat i)) = in_cell X b v / INR count.
Proof.
  intros X b v Hb. pose proof count_pos as Hc. apply lt_0_INR in Hc.
  assert (forall i, in_cell X (b + word_bits) (v * 2 ^ word_bits + Z.of_nat i) =
    if Rle_dec (IZR v * INR count + INR i) (X * width b * INR count) then
      if Rlt_dec (X * width b * INR count) (IZR v * INR count + INR i + 1) then 1 else 0 else 0) as Hcell.
  { intros i. unfold in_cell. rewrite plus_IZR, mult_IZR, <- count_R, <- INR_IZR_INZ, width_more by auto.
    rewrite <- Rmult_assoc. reflexivity. }
  rewrite (mean_ext count _ _ (fun i _ => Hcell i)).
  set (x := X * width b) in *. unfold in_cell. fold x.
  destruct (Rle_dec (IZR v) x) as [H1|H1]; [destruct (Rlt_dec x (IZR v + 1)) as [H2|H2]|].
  - set (y := (x - IZR v) * INR count).
    assert (0 <= y < INR count) as Hy by (unfold y; split; [apply Rmult_le_pos; lra | nra]).
    destruct (archimed y) as [A1 A2]. set (k := Z.to_nat (up y - 1)).
    assert (0 <= up y - 1)%Z as Hup by (assert (0 < up y)%Z by (apply lt_IZR; simpl; lra); lia).
    assert (INR k = IZR (up y) - 1) as Hk by (unfold k; rewrite INR_IZR_INZ, Z2Nat.id, minus_IZR by auto; reflexivity).
    assert (k < count)%nat as Hkc by (apply INR_lt; lra).
    rewrite (mean_one count k); auto.
    + destruct Rle_dec as [|N]; [destruct Rlt_dec as [|N]|]; auto; exfalso; apply N; unfold y in *; nra.
    + intros i Hi Hne. destruct Rle_dec as [B1|]; [destruct Rlt_dec as [B2|]|]; auto. exfalso. apply Hne.
      assert (INR i < INR k + 1 /\ INR k < INR i + 1) as [C1 C2] by (unfold y in *; split; lra).
      assert (INR 1 = 1) as I1 by reflexivity.
      rewrite <- I1, <- plus_INR in C1, C2. apply INR_lt in C1. apply INR_lt in C2. lia.
  - unfold mean. rewrite sum_zero; [lra|]. intros i Hi. apply lt_INR in Hi.
    assert (INR i + 1 <= INR count) by (rewrite <- S_INR; apply le_INR; apply INR_lt in Hi; lia).
    destruct Rle_dec; [destruct Rlt_dec|]; auto. exfalso. nra.
  - unfold mean. rewrite sum_zero; [lra|]. intros i Hi. pose proof (pos_INR i).
    destruct Rle_dec; [destruct Rlt_dec|]; auto. exfalso. nra.
Qed.

Section Decisions.
Variable A : Type.
Variable decide : Z -> Z -> option A.     (* from b bits, v: a result, or that they do not decide *)

(* Decide, or draw one more word and try again. *)
Fixpoint decide_by (fuel : nat) (b v : Z) : prog A :=
  match decide b v with
  | Some a => Ret a
  | None => match fuel with
    | O => Stuck
    | S fuel => Draw (fun w => decide_by fuel (b + word_bits) (v * 2 ^ word_bits + w))
    end
  end.

Variables (event : A -> bool) (L U : R).
Hypothesis LU : L <= U.
(* What is decided is true of every number that begins with these bits. *)
Hypothesis decide_in : forall b v a, (0 <= b)%Z -> (0 <= v < 2 ^ b)%Z -> decide b v = Some a -> event a = true ->
  L * width b <= IZR v /\ IZR v + 1 <= U * width b.
Hypothesis decide_out : forall b v a, (0 <= b)%Z -> (0 <= v < 2 ^ b)%Z -> decide b v = Some a -> event a = false ->
  IZR v + 1 <= L * width b \/ U * width b <= IZR v.

Lemma longer : forall b v i, (0 <= b)%Z -> (0 <= v < 2 ^ b)%Z -> (i < count)%nat ->
  (0 <= v * 2 ^ word_bits + Z.of_nat i < 2 ^ (b + word_bits))%Z.
Proof.
  intros b v i Hb Hv Hi. pose proof count_Z. rewrite Z.pow_add_r by lia. nia.
Qed.

(* Never more than the law says; and less only by what is not decided yet. *)
Theorem decided_law : forall fuel b v, (0 <= b)%Z -> (0 <= v < 2 ^ b)%Z ->
  chance (decide_by fuel b v) event <= share L U b v <= chance (decide_by fuel b v) event + stuck (decide_by fuel b v).
Proof.
  induction fuel as [|fuel IH]; intros b v Hb Hv; simpl; destruct (decide b v) as [a|] eqn:E; simpl.
  1, 3: destruct (event a) eqn:Ea;
    [destruct (decide_in b v a Hb Hv E Ea); rewrite share_inside; lra
    | rewrite share_outside; auto; [lra | apply (decide_out b v a); auto]].
  - pose proof (share_bounds L U b v). lra.
  - rewrite <- (share_split L U b v Hb). rewrite <- mean_plus. pose proof count_pos.
    split; apply mean_le; auto; intros i Hi; apply IH; try lia; apply longer; auto.
Qed.

(* What is left open holds an end of the interval. *)
Hypothesis decide_open : forall b v, (0 <= b)%Z -> (0 <= v < 2 ^ b)%Z -> decide b v = None ->
  (IZR v + 1 <= L * width b \/ U * width b <= IZR v) \/ in_cell L b v = 1 \/ in_cell U b v = 1.

Theorem decided_rate : forall fuel b v, (0 <= b)%Z -> (0 <= v < 2 ^ b)%Z ->
  share L U b v - (in_cell L b v + in_cell U b v) / INR count ^ fuel <= chance (decide_by fuel b v) event.
Proof.
  pose proof count_pos as Hc. apply lt_0_INR in Hc.
  assert (forall n b v, 0 <= (in_cell L b v + in_cell U b v) / INR count ^ n) as Hf.
  { intros n b v. pose proof (in_cell_bounds L b v). pose proof (in_cell_bounds U b v).
    apply Rmult_le_pos; [lra | left; apply Rinv_0_lt_compat, pow_lt; auto]. }
  assert (forall fuel b v a, (0 <= b)%Z -> (0 <= v < 2 ^ b)%Z -> decide b v = Some a ->
    share L U b v - (in_cell L b v + in_cell U b v) / INR count ^ fuel <= chance (decide_by fuel b v) event) as Hdone.
  { intros fuel b v a Hb Hv E. pose proof (decided_law fuel b v Hb Hv) as D. pose proof (Hf fuel b v).
    assert (stuck (decide_by fuel b v) = 0) by (destruct fuel; simpl; rewrite E; reflexivity). lra. }
  induction fuel as [|fuel IH]; intros b v Hb Hv; destruct (decide b v) as [a|] eqn:E; try (eapply Hdone; eauto; fail);
    pose proof (in_cell_bounds L b v); pose proof (in_cell_bounds U b v); simpl; rewrite E; simpl.
  - pose proof (share_bounds L U b v). replace ((in_cell L b v + in_cell U b v) / 1) with (in_cell L b v + in_cell U b v) by field.
    destruct (decide_open b v Hb Hv E) as [D|[D|D]]; [|lra|lra].
    rewrite share_outside; auto. lra.
  - rewrite <- (share_split L U b v Hb).
    replace ((in_cell L b v + in_cell U b v) / (INR count * INR count ^ fuel)) with
      ((in_cell L b v / INR count + in_cell U b v / INR count) * / INR count ^ fuel).
    + rewrite <- !in_cell_split, <- mean_plus, <- mean_scale_right, <- mean_minus by auto.
      apply mean_le; [apply count_pos|]. intros i Hi. apply IH; [lia | apply longer; auto].
    + field. split; [apply pow_nonzero|]; lra.
Qed.
End Decisions.

Lemma share_whole : forall L U, 0 <= L <= U -> U <= 1 -> share L U 0 0 = U - L.
Proof.
  intros L U H1 H2. unfold share, clip, width, Rmin, Rmax. simpl. repeat destruct Rle_dec; lra.
Qed.

(* A word whose leading bits are read first: the mean over these of what follows. *)
Definition first_bits (bits : Z) : nat := Z.to_nat (2 ^ bits).

Lemma share_first : forall L U bits, (0 <= bits)%Z -> 0 <= L <= U -> U <= 1 ->
  mean (first_bits bits) (fun i => share L U bits (Z.of_nat i)) = U - L.
Proof.
  intros L U bits Hb H1 H2. unfold mean, first_bits.
  assert (0 < 2 ^ bits)%Z as Hp by (apply Z.pow_pos_nonneg; lia).
  set (n := Z.to_nat (2 ^ bits)).
  assert (INR n = width bits) as Hn by (unfold n, width; rewrite INR_IZR_INZ, Z2Nat.id; auto; lia).
  set (c := clip (L * width bits) (U * width bits)).
  set (g := fun i => c (INR i)).
  rewrite (sum_ext n _ (fun i => g (S i) - g i)).
  - rewrite (telescope n g). unfold g, c. rewrite Hn. replace (width bits) with (1 * width bits) at 3 by ring.
    replace (INR 0) with (0 * width bits) by (simpl; ring).
    pose proof (width_pos bits Hb). rewrite !clip_scale by lra.
    assert (clip L U 1 = U) as -> by (unfold clip, Rmin, Rmax; repeat destruct Rle_dec; lra).
    assert (clip L U 0 = L) as -> by (unfold clip, Rmin, Rmax; repeat destruct Rle_dec; lra).
    field. lra.
  - intros i _. unfold share, g, c. rewrite <- INR_IZR_INZ, S_INR. reflexivity.
Qed.

Lemma in_cell_first : forall X bits, (0 <= bits)%Z ->
  sum (first_bits bits) (fun i => in_cell X bits (Z.of_nat i)) <= 1.
Proof.
  intros X bits Hb. set (n := first_bits bits). set (f := fun i => in_cell X bits (Z.of_nat i)).
  assert (forall i j, i <> j -> f i = 1 -> f j = 0) as Hone.
  { intros i j Hij Hi. unfold f, in_cell in *.
    destruct (Rle_dec (IZR (Z.of_nat i)) (X * width bits)); [|lra].
    destruct (Rlt_dec (X * width bits) (IZR (Z.of_nat i) + 1)); [|lra].
    destruct Rle_dec; [destruct Rlt_dec|]; auto. exfalso. apply Hij.
    assert (Z.of_nat i < Z.of_nat j + 1 /\ Z.of_nat j < Z.of_nat i + 1)%Z by
      (split; apply lt_IZR; rewrite plus_IZR; lra). lia. }
  assert (forall i, f i = 0 \/ f i = 1) as H01.
  { intros i. unfold f, in_cell. destruct Rle_dec; [destruct Rlt_dec|]; auto. }
  assert (sum n f <= 1 /\ (sum n f = 0 \/ exists i, (i < n)%nat /\ f i = 1)) as [H _]; auto.
  induction n as [|n [IH1 IH2]]; simpl; [split; [lra | auto]|].
  destruct (H01 n) as [E|E]; rewrite E.
  - split; [lra|]. destruct IH2 as [IH2|[i [Hi Hf]]]; [left; lra | right; exists i; split; auto].
  - destruct IH2 as [IH2|[i [Hi Hf]]]; [split; [lra | right; exists n; split; auto]|].
    rewrite (Hone i n) in E; [lra | lia | auto].
Qed.

Section First.
Variables (A : Type) (decide : Z -> Z -> option A) (event : A -> bool) (L U : R) (bits : Z).
Hypothesis bits_nonneg : (0 <= bits)%Z.
Hypothesis L_U : 0 <= L <= U.
Hypothesis U_1 : U <= 1.
Hypothesis decide_in : forall b v a, (0 <= b)%Z -> (0 <= v < 2 ^ b)%Z -> decide b v = Some a -> event a = true ->
  L * width b <= IZR v /\ IZR v + 1 <= U * width b.
Hypothesis decide_out : forall b v a, (0 <= b)%Z -> (0 <= v < 2 ^ b)%Z -> decide b v = Some a -> event a = false ->
  IZR v + 1 <= L * width b \/ U * width b <= IZR v.

(* The chance of the event when `bits` uniform bits are read first, and as many words as it takes up to `fuel`. *)
Definition law_by (fuel : nat) : R :=
  mean (first_bits bits) (fun i => chance (decide_by A decide fuel bits (Z.of_nat i)) event).
Definition open_by (fuel : nat) : R :=
  mean (first_bits bits) (fun i => stuck (decide_by A decide fuel bits (Z.of_nat i))).

Lemma first_pos : (0 < first_bits bits)%nat.
Proof. unfold first_bits. assert (0 < 2 ^ bits)%Z by (apply Z.pow_pos_nonneg; lia). lia. Qed.

Lemma first_range : forall i, (i < first_bits bits)%nat -> (0 <= Z.of_nat i < 2 ^ bits)%Z.
Proof. unfold first_bits. lia. Qed.

Theorem first_law : forall fuel, law_by fuel <= U - L <= law_by fuel + open_by fuel.
Proof.
  intros fuel. rewrite <- (share_first L U bits) by auto. unfold law_by, open_by. rewrite <- mean_plus.
  split; apply mean_le; try apply first_pos; intros i Hi;
    apply (decided_law A decide event L U); auto; try apply first_range; auto; apply L_U.
Qed.

Hypothesis decide_open : forall b v, (0 <= b)%Z -> (0 <= v < 2 ^ b)%Z -> decide b v = None ->
  (IZR v + 1 <= L * width b \/ U * width b <= IZR v) \/ in_cell L b v = 1 \/ in_cell U b v = 1.

Theorem first_rate : forall fuel, U - L - 2 / (width bits * INR count ^ fuel) <= law_by fuel.
Proof.
  intros fuel. pose proof count_pos as Hc. apply lt_0_INR in Hc.
  assert (0 < INR count ^ fuel) as Hcf by (apply pow_lt; auto).
  assert (INR (first_bits bits) = width bits) as Hn.
  { unfold first_bits, width. rewrite INR_IZR_INZ, Z2Nat.id; auto. apply Z.pow_nonneg. lia. }
  pose proof (width_pos bits bits_nonneg) as Hw.
  apply Rle_trans with (mean (first_bits bits) (fun i => share L U bits (Z.of_nat i) -
    (in_cell L bits (Z.of_nat i) + in_cell U bits (Z.of_nat i)) / INR count ^ fuel)).
  - rewrite mean_minus, share_first by auto. unfold Rdiv at 2. rewrite mean_scale_right, mean_plus. unfold mean.
    rewrite Hn. pose proof (in_cell_first L bits bits_nonneg). pose proof (in_cell_first U bits bits_nonneg).
    set (x := sum (first_bits bits) (fun i => in_cell L bits (Z.of_nat i))) in *.
    set (y := sum (first_bits bits) (fun i => in_cell U bits (Z.of_nat i))) in *.
    replace ((x / width bits + y / width bits) * / INR count ^ fuel)
      with ((x + y) / (width bits * INR count ^ fuel)) by (field; split; lra).
    assert ((x + y) / (width bits * INR count ^ fuel) <= 2 / (width bits * INR count ^ fuel)); [|lra].
    apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat, Rmult_lt_0_compat; auto | lra].
  - apply mean_le; [apply first_pos|]. intros i Hi.
    apply (decided_rate A decide event L U); auto; try apply first_range; auto; apply L_U.
Qed.
End First.
End Words.
