(* The samplers of noise/samplers.py and noise/choice.py: the law of what they return, from uniform words. *)
Require Import Reals Lra Lia Psatz ZArith List Bool.
From Sfumato Require Import Sums Lazy Exp.
Import ListNotations.

(* ==== The code ==== *)
Open Scope Z_scope.

(* The first threshold that v does not exceed; nothing if they are equal. All thresholds that are not listed are top. *)
Fixpoint lookup_from (k : Z) (l : list Z) (top v : Z) : option Z :=
  match l with
  | [] => if v <? top then Some k else None
  | t :: l => if v <? t then Some k else if v =? t then None else lookup_from (k + 1) l top v
  end.

Section Code.
Variable word_bits : Z.

(* `draw_narrow`: the low bit of a word is the sign, the bits above it choose the magnitude. *)
Definition lookup (table : Z -> list Z) (b v : Z) : option Z := lookup_from 0 (table b) (2 ^ b - 1) v.

Definition signed (w x : Z) : Z := if Z.odd w then - x else x.

Definition narrow (table : Z -> list Z) (fuel : nat) : prog Z :=
  Draw (fun w => bind (decide_by word_bits Z (lookup table) fuel (word_bits - 1) (w / 2)) (fun k => Ret (signed w k))).

(* `_keep_one`: whether d of b bits, and more, says that a uniform number is 1 - exp(- n / d) or more. *)
Definition keep (floor : Z -> Z) (n d : Z) (b v : Z) : option bool :=
  if n =? 0 then Some true
  else
    let most := - (- (n * 2 ^ b) / d) in
    if most <=? v then Some true
    else if v + 2 <=? most - (most * most) / 2 ^ (b + 1) - 1 then Some false
    else if v =? floor b then None else Some (floor b <? v).

(* One trial of `draw_wide`. `floor n d b` is the floor of 2^b (1 - exp(- n / d)). *)
Definition trial (table : Z -> list Z) (floor : Z -> Z -> Z -> Z) (loss : Z -> Z -> Z * Z) (shift keep_bits : Z)
    (fuel : nat) : prog (option Z) :=
  Draw (fun w1 => Draw (fun w2 =>
    bind (decide_by word_bits Z (lookup table) fuel (word_bits - 1) (w1 / 2)) (fun block =>
      let offset := w2 mod 2 ^ shift in
      let (n, d) := loss block offset in
      bind (decide_by word_bits bool (keep (floor n d) n d) fuel keep_bits (w2 / 2 ^ (word_bits - keep_bits)))
        (fun kept =>
          let x := block * 2 ^ shift + offset in
          Ret (if kept && negb ((x =? 0) && Z.odd w1) then Some (signed w1 x) else None))))).

Fixpoint wide (one : prog (option Z)) (tries : nat) : prog Z :=
  match tries with
  | O => Stuck
  | S tries => bind one (fun o => match o with Some x => Ret x | None => wide one tries end)
  end.

(* The loss of a pair, for noise of a power and a scale sn / sd: `_Plan.loss`. *)
Definition pair_loss (power sn sd shift block offset : Z) : Z * Z :=
  let first := block * 2 ^ shift in (((first + offset) ^ power - first ^ power) * sd ^ power, power * sn ^ power).

(* `_flip`: a coin that shows heads with probability exp(- n / d), from an enclosure of that. *)
Definition flip_decide (bounds : Z -> option (Z * Z)) (b v : Z) : option bool :=
  match bounds b with
  | None => None
  | Some (low, high) => if v <? low then Some true else if high <=? v then Some false else None
  end.

(* `_thresholds` for Laplace noise: the floors of 2^bits C(k), by the tails. *)
Fixpoint tails (fuel : nat) (tail error low growth precision guard top : Z) : option (list Z) :=
  match fuel with
  | O => None
  | S fuel =>
      let units := (tail + error - 1) / 2 ^ guard in
      if units =? 0 then Some []
      else if (tail - 1) / 2 ^ guard =? units then
        match tails fuel (tail * low / 2 ^ precision) (error + growth) low growth precision guard top with
        | Some rest => Some (top - units :: rest)
        | None => None
        end
      else None
  end.

Definition laplace_thresholds (fuel : nat) (n d bits guard : Z) (folded : bool) : option (list Z) :=
  let precision := bits + guard in
  let one := 2 ^ precision in
  match exp_bounds fuel n d precision with
  | None => None
  | Some (low, high) =>
      let tail := if folded then low * (2 * one) / (one + low) else low in
      let error := if folded then - (- (high * (2 * one)) / (one + high)) - tail else high - low in
      tails fuel tail error low (high - low + 1) precision guard (2 ^ bits - 1)
  end.
End Code.

(* ==== Their law ==== *)
Open Scope R_scope.

(* ---- Tables ---- *)
Section Tables.
Variable word_bits : Z.
Hypothesis word_bits_pos : (1 < word_bits)%Z.
Variable C : nat -> R.                     (* the cumulative chances *)
Hypothesis C_range : forall k, 0 <= C k < 1.
Hypothesis C_rises : forall k, C k <= C (S k).
Variable table : Z -> list Z.
(* Every threshold is the floor of 2^b C(k), and those that are not listed are 2^b - 1. *)
Hypothesis floors : forall b k, (0 <= b)%Z ->
  let t := nth k (table b) (2 ^ b - 1)%Z in IZR t <= C k * width b < IZR t + 1.

Definition before (k : nat) : R := match k with O => 0 | S k => C k end.

Lemma C_mono : forall i j, (i <= j)%nat -> C i <= C j.
Proof. intros i j H. induction H; [lra|]. apply Rle_trans with (C m); auto. Qed.

Lemma lookup_sound : forall b v l j, (0 <= b)%Z ->
  (forall i, nth (j + i) (table b) (2 ^ b - 1)%Z = nth i l (2 ^ b - 1)%Z) ->
  (forall a, lookup_from (Z.of_nat j) l (2 ^ b - 1) v = Some a ->
    exists k, a = Z.of_nat k /\ (j <= k)%nat /\ IZR v + 1 <= C k * width b /\
      forall i, (j <= i < k)%nat -> C i * width b <= IZR v) /\
  (lookup_from (Z.of_nat j) l (2 ^ b - 1) v = None ->
    (2 ^ b - 1 < v)%Z \/ exists k, IZR v <= C k * width b < IZR v + 1).
Proof.
  intros b v l. induction l as [|t l IH]; intros j Hb Hl; cbn [lookup_from].
  - pose proof (floors b j Hb) as F. simpl in F. rewrite <- (Nat.add_0_r j), Hl in F. simpl in F.
    rewrite Nat.add_0_r in F. split.
    + intros a H. destruct (Z.ltb_spec v (2 ^ b - 1)); [|discriminate]. injection H as <-.
      exists j. repeat split; auto; [|intros; lia].
      apply Rle_trans with (IZR (2 ^ b - 1)); [rewrite <- plus_IZR; apply IZR_le; lia | apply F].
    + intros H. destruct (Z.ltb_spec v (2 ^ b - 1)); [discriminate|].
      destruct (Z.eq_dec v (2 ^ b - 1)) as [->|]; [right; exists j; exact F | left; lia].
  - pose proof (floors b j Hb) as F. simpl in F. rewrite <- (Nat.add_0_r j), Hl in F. simpl in F.
    rewrite Nat.add_0_r in F.
    destruct (Z.ltb_spec v t) as [H1|H1].
    { split; [|discriminate]. intros a H. injection H as <-. exists j. repeat split; auto; [|intros; lia].
      apply Rle_trans with (IZR t); [rewrite <- plus_IZR; apply IZR_le; lia | apply F]. }
    destruct (Z.eqb_spec v t) as [->|H2].
    { split; [discriminate|]. intros _. right. exists j. exact F. }
    destruct (IH (S j) Hb) as [I1 I2].
    { intros i. replace (S j + i)%nat with (j + S i)%nat by lia. apply Hl. }
    replace (Z.of_nat (S j)) with (Z.of_nat j + 1)%Z in * by lia. split; auto.
    intros a H. destruct (I1 a H) as (k & -> & Hk & Hu & Hlow). exists k. repeat split; auto; [lia|].
    intros i Hi. destruct (Nat.eq_dec i j) as [->|]; [|apply Hlow; lia].
    apply Rle_trans with (IZR t + 1); [lra | rewrite <- plus_IZR; apply IZR_le; lia].
Qed.

Lemma lookup_in : forall k b v a, (0 <= b)%Z -> (0 <= v < 2 ^ b)%Z -> lookup table b v = Some a ->
  Z.eqb a (Z.of_nat k) = true -> before k * width b <= IZR v /\ IZR v + 1 <= C k * width b.
Proof.
  intros k b v a Hb Hv H E. apply Z.eqb_eq in E.
  destruct (lookup_sound b v (table b) 0 Hb ltac:(auto)) as [S1 _]. destruct (S1 a H) as (k' & -> & _ & Hu & Hl).
  apply Nat2Z.inj in E. subst k'. split; auto. destruct k; simpl; [|apply Hl; lia].
  rewrite Rmult_0_l. apply (IZR_le 0). lia.
Qed.

Lemma lookup_out : forall k b v a, (0 <= b)%Z -> (0 <= v < 2 ^ b)%Z -> lookup table b v = Some a ->
  Z.eqb a (Z.of_nat k) = false -> IZR v + 1 <= before k * width b \/ C k * width b <= IZR v.
Proof.
  intros k b v a Hb Hv H E. apply Z.eqb_neq in E. pose proof (width_pos b Hb) as Hw.
  destruct (lookup_sound b v (table b) 0 Hb ltac:(auto)) as [S1 _]. destruct (S1 a H) as (k' & -> & _ & Hu & Hl).
  destruct (Nat.lt_trichotomy k' k) as [L|[L|L]]; [|subst; congruence|right; apply Hl; lia].
  left. destruct k as [|k]; [lia|]. simpl. apply Rle_trans with (C k' * width b); auto.
  apply Rmult_le_compat_r; [lra | apply C_mono; lia].
Qed.

Lemma lookup_open : forall k b v, (0 <= b)%Z -> (0 <= v < 2 ^ b)%Z -> lookup table b v = None ->
  (IZR v + 1 <= before k * width b \/ C k * width b <= IZR v) \/
  in_cell (before k) b v = 1 \/ in_cell (C k) b v = 1.
Proof.
  intros k b v Hb Hv H. pose proof (width_pos b Hb) as Hw.
  destruct (lookup_sound b v (table b) 0 Hb ltac:(auto)) as [_ S2].
  destruct (S2 H) as [L|(j & Hj)]; [lia|].
  destruct (Rle_dec (C k * width b) (IZR v)) as [D1|D1]; [left; right; auto|].
  destruct (Rle_dec (IZR v + 1) (before k * width b)) as [D2|D2]; [left; left; auto|]. right.
  destruct (le_lt_dec k j) as [L|L].
  - right. assert (C k * width b <= C j * width b) by (apply Rmult_le_compat_r; [lra | apply C_mono; auto]).
    unfold in_cell. destruct Rle_dec; [destruct Rlt_dec|]; lra.
  - left. destruct k as [|k]; [lia|]. simpl in *.
    assert (C j * width b <= C k * width b) by (apply Rmult_le_compat_r; [lra | apply C_mono; lia]).
    unfold in_cell. destruct Rle_dec; [destruct Rlt_dec|]; lra.
Qed.

Lemma before_range : forall k, 0 <= before k <= C k.
Proof.
  intros k. destruct k as [|k]; simpl; [pose proof (C_range 0); lra|].
  split; [apply C_range | apply C_rises].
Qed.

(* The chance that a table gives the magnitude k, when `bits` bits are read first and then up to `fuel` words. *)
Definition magnitude (bits : Z) (fuel k : nat) : R :=
  law_by word_bits Z (lookup table) (fun a => Z.eqb a (Z.of_nat k)) bits fuel.

Theorem table_law : forall bits fuel k, (0 <= bits)%Z ->
  C k - before k - 2 / (width bits * INR (count word_bits) ^ fuel) <= magnitude bits fuel k <= C k - before k.
Proof.
  intros bits fuel k Hb. pose proof (C_range k). split.
  - apply (first_rate word_bits ltac:(lia) Z (lookup table) (fun a => Z.eqb a (Z.of_nat k)) (before k) (C k));
      auto; try lra; [apply before_range | apply lookup_in | apply lookup_out | apply lookup_open].
  - apply (first_law word_bits ltac:(lia) Z (lookup table) (fun a => Z.eqb a (Z.of_nat k)) (before k) (C k));
      auto; try lra; [apply before_range | apply lookup_in | apply lookup_out].
Qed.

Lemma magnitude_nonneg : forall bits fuel k, 0 <= magnitude bits fuel k.
Proof. intros. unfold magnitude, law_by. apply mean_nonneg. intros. apply chance_nonneg. Qed.

(* ---- A word is its sign and its other bits. ---- *)
Definition half : Z := (word_bits - 1)%Z.

Lemma count_split : forall a b, (0 <= a)%Z -> (0 <= b)%Z -> (a + b = word_bits)%Z ->
  count word_bits = (first_bits a * first_bits b)%nat.
Proof.
  intros a b Ha Hb E. unfold count, first_bits. rewrite <- E, Z.pow_add_r, Z2Nat.inj_mul; auto;
    apply Z.pow_nonneg; lia.
Qed.

Lemma word_parts : forall a b (f : Z -> Z -> R), (0 <= a)%Z -> (0 <= b)%Z -> (a + b = word_bits)%Z ->
  mean (count word_bits) (fun i => f (Z.of_nat i / 2 ^ b) (Z.of_nat i mod 2 ^ b))%Z =
  mean (first_bits a) (fun i => mean (first_bits b) (fun j => f (Z.of_nat i) (Z.of_nat j))).
Proof.
  intros a b f Ha Hb E. rewrite (count_split a b Ha Hb E), mean_pairs by (apply first_pos; auto).
  apply mean_ext. intros i Hi. apply mean_ext. intros j Hj.
  assert (0 <= Z.of_nat j < 2 ^ b)%Z by (unfold first_bits in Hj; lia).
  assert (Z.of_nat (first_bits b) = 2 ^ b)%Z as Eb by (unfold first_bits; rewrite Z2Nat.id; lia).
  rewrite Nat2Z.inj_add, Nat2Z.inj_mul, Eb. f_equal.
  - rewrite Z.add_comm, Z.div_add, Z.div_small by lia. lia.
  - rewrite Z.add_comm, Z.mod_add, Z.mod_small by lia. reflexivity.
Qed.

Lemma word_sign : forall (f : Z -> bool -> R),
  mean (count word_bits) (fun i => f (Z.of_nat i / 2) (Z.odd (Z.of_nat i)))%Z =
  mean (first_bits half) (fun i => (f (Z.of_nat i) false + f (Z.of_nat i) true) / 2).
Proof.
  intros f. unfold half.
  rewrite (mean_ext _ _ (fun i => f (Z.of_nat i / 2 ^ 1)%Z (Z.odd (Z.of_nat i mod 2 ^ 1)))).
  - rewrite (word_parts (word_bits - 1) 1 (fun x y => f x (Z.odd y))) by lia.
    apply mean_ext. intros i _. unfold mean, first_bits. simpl. lra.
  - intros i _. change (2 ^ 1)%Z with 2%Z. f_equal.
    rewrite (Z.div_mod (Z.of_nat i) 2) at 1 by lia.
    rewrite Z.odd_add_mul_2 || (rewrite Z.add_comm, Z.odd_add_mul_2). reflexivity.
Qed.

(* ---- One table over all magnitudes ---- *)
Definition is (x : Z) (y : Z) : bool := Z.eqb y x.

Lemma lookup_nonneg : forall b v a, (0 <= b)%Z -> lookup table b v = Some a -> (0 <= a)%Z.
Proof.
  intros b v a Hb H. destruct (lookup_sound b v (table b) 0 Hb ltac:(auto)) as [S1 _].
  destruct (S1 a H) as (k & -> & _). lia.
Qed.

Theorem narrow_chance : forall fuel x,
  chance word_bits (narrow word_bits table fuel) (is x) =
    if Z.eqb x 0 then magnitude half fuel 0 else magnitude half fuel (Z.to_nat (Z.abs x)) / 2.
Proof.
  intros fuel x. unfold narrow. simpl.
  set (D := fun v => decide_by word_bits Z (lookup table) fuel half v).
  set (k := Z.to_nat (Z.abs x)). assert (Z.of_nat k = Z.abs x) as Hk by (unfold k; lia).
  set (ok := fun s : bool => (Z.eqb x 0 || Bool.eqb s (x <? 0)%Z)%bool).
  assert (forall (v : Z) (s : bool), chance word_bits (bind (D v) (fun a => Ret (if s then - a else a)%Z)) (is x) =
      chance word_bits (D v) (fun a => Z.eqb a (Z.of_nat k)) * (if ok s then 1 else 0)) as HD.
  { intros v s.
    assert (forall p : prog Z, (forall e : Z -> bool, chance word_bits (bind p (fun a => Ret (if s then - a else a)%Z)) e =
      chance word_bits p (fun a => e (if s then - a else a)%Z))) as Hmap.
    { intros p e. induction p as [a| |next IH]; simpl; auto. apply mean_ext. auto. }
    rewrite Hmap. clear Hmap. unfold D.
    assert (forall f b u, (0 <= b)%Z -> chance word_bits (decide_by word_bits Z (lookup table) f b u)
        (fun a => is x (if s then (- a)%Z else a)) =
      chance word_bits (decide_by word_bits Z (lookup table) f b u) (fun a => Z.eqb a (Z.of_nat k)) *
      (if ok s then 1 else 0)) as HF.
    { induction f as [|f IHf]; intros b u Hb; simpl; destruct (lookup table b u) as [a|] eqn:El; simpl; try lra.
      1, 2: pose proof (lookup_nonneg b u a Hb El) as Ha; unfold is, ok;
        destruct (Z.eqb_spec a (Z.of_nat k)), s, (Z.eqb_spec x 0), (Z.ltb_spec x 0); simpl;
        repeat match goal with |- context [Z.eqb ?p ?q] => destruct (Z.eqb_spec p q) end; try lra; exfalso; lia.
      rewrite <- mean_scale_right. apply mean_ext. intros i _. apply IHf. lia. }
    apply HF. unfold half. lia. }
  rewrite (mean_ext _ _ (fun i => (fun v s => chance word_bits (D v) (fun a => Z.eqb a (Z.of_nat k)) *
    (if ok s then 1 else 0)) (Z.of_nat i / 2)%Z (Z.odd (Z.of_nat i)))).
  - rewrite (word_sign (fun v s => chance word_bits (D v) (fun a => Z.eqb a (Z.of_nat k)) * (if ok s then 1 else 0))).
    unfold magnitude, law_by, ok. fold D.
    destruct (Z.eqb_spec x 0) as [->|Hx].
    + assert (k = 0%nat) as Ek by reflexivity. rewrite Ek. apply mean_ext. intros i _. cbv beta.
      cbn [orb]. unfold D. lra.
    + unfold Rdiv at 2. rewrite <- mean_scale_right. apply mean_ext. intros i _.
      destruct (Z.ltb_spec x 0); cbn [orb Bool.eqb]; unfold D; lra.
  - intros i _. rewrite <- HD. unfold D, half, signed. reflexivity.
Qed.

Definition folded_law (x : Z) : R :=
  if Z.eqb x 0 then C 0 else (C (Z.to_nat (Z.abs x)) - before (Z.to_nat (Z.abs x))) / 2.

(* `draw_narrow` returns x with the chance of x, but for what is not decided after `fuel` words more. *)
Theorem narrow_law : forall fuel x,
  folded_law x - 2 / (width half * INR (count word_bits) ^ fuel) <=
    chance word_bits (narrow word_bits table fuel) (is x) <= folded_law x.
Proof.
  intros fuel x. rewrite narrow_chance. unfold folded_law.
  assert (0 <= 2 / (width half * INR (count word_bits) ^ fuel)) as Hpos.
  { apply Rmult_le_pos; [lra|]. left. apply Rinv_0_lt_compat, Rmult_lt_0_compat.
    - apply width_pos. unfold half. lia.
    - apply pow_lt, lt_0_INR, count_pos. lia. }
  destruct (Z.eqb_spec x 0) as [->|Hx].
  - pose proof (table_law half fuel 0 ltac:(unfold half; lia)) as H. simpl before in H. lra.
  - pose proof (table_law half fuel (Z.to_nat (Z.abs x)) ltac:(unfold half; lia)). lra.
Qed.
End Tables.

(* ---- Whether a pair is kept ---- *)
Lemma nonneg_slope : forall (f g : R -> R) x, 0 <= x -> (forall c, 0 <= c <= x -> derivable_pt_lim f c (g c)) ->
  (forall c, 0 < c < x -> 0 <= g c) -> f 0 <= f x.
Proof.
  intros f g x [Hx|<-] Hd Hp; [|lra]. destruct (MVT_cor2 f g 0 x Hx Hd) as (c & E & Hc).
  pose proof (Hp c Hc). nra.
Qed.

(* g - g^2/2 <= 1 - exp(-g) < g *)
Lemma loss_above : forall g, 0 < g -> 1 - exp (- g) < g.
Proof. intros g Hg. pose proof (exp_ineq1 (- g) ltac:(lra)). lra. Qed.

Lemma loss_below : forall g, 0 <= g -> g - g * g / 2 <= 1 - exp (- g).
Proof.
  intros g Hg. pose proof (taylor 3 g Hg) as H.
  assert (partial 3 g - term 3 g <= exp (- g) <= partial 3 g + term 3 g) as [_ _] by
    (unfold Rabs in H; destruct Rcase_abs in H; lra).
  pose proof (rest_nonneg 3 g Hg) as R3. pose proof (rest_partial 3 g) as E.
  simpl in E, R3. unfold term in *. simpl in *. lra.
Qed.

Section Keep.
Variable word_bits : Z.
Hypothesis word_bits_pos : (1 < word_bits)%Z.
Variables n d : Z.
Hypothesis n_nonneg : (0 <= n)%Z.
Hypothesis d_pos : (0 < d)%Z.
Variable floor : Z -> Z.
Definition loss := IZR n / IZR d.
Hypothesis floor_right : forall b, (0 <= b)%Z -> (0 < n)%Z ->
  IZR (floor b) <= (1 - exp (- loss)) * width b < IZR (floor b) + 1.

Lemma loss_nonneg : 0 <= loss.
Proof.
  unfold loss. apply Rmult_le_pos; [apply (IZR_le 0); auto|]. left. apply Rinv_0_lt_compat, (IZR_lt 0). auto.
Qed.

Lemma loss_pos : (0 < n)%Z -> 0 < loss.
Proof.
  intros H. unfold loss. apply Rmult_lt_0_compat; [apply (IZR_lt 0); auto|].
  apply Rinv_0_lt_compat, (IZR_lt 0). auto.
Qed.

Lemma chance_kept : 0 < exp (- loss) <= 1.
Proof.
  split; [apply exp_pos|]. pose proof loss_nonneg as H. rewrite <- exp_0.
  destruct H as [H|H]; [left; apply exp_increasing; lra | right; rewrite <- H, Ropp_0; reflexivity].
Qed.

(* The two tests in whole numbers say what the floor would say. *)
Theorem keep_tests : forall b v a, (0 <= b)%Z -> (0 <= v < 2 ^ b)%Z -> (0 < n)%Z ->
  keep floor n d b v = Some a -> if a then (floor b < v)%Z else (v < floor b)%Z.
Proof.
  intros b v a Hb Hv Hn H. unfold keep in H.
  destruct (Z.eqb_spec n 0); [lia|].
  pose proof (width_pos b Hb) as Hw. destruct (floor_right b Hb Hn) as [F1 F2].
  pose proof (loss_pos Hn) as Hg.
  set (most := (- (- (n * 2 ^ b) / d))%Z) in *.
  assert (loss * width b <= IZR most < loss * width b + 1) as Hmost.
  { pose proof (div_floor (- (n * 2 ^ b)) d d_pos) as D. unfold most. rewrite opp_IZR in *. rewrite mult_IZR in D.
    assert (0 < IZR d) by (apply (IZR_lt 0); auto).
    replace (- (IZR n * IZR (2 ^ b)) / IZR d) with (- (loss * width b)) in D by (unfold loss, width; field; lra). lra. }
  destruct (Z.leb_spec most v) as [H1|H1].
  - injection H as <-. apply lt_IZR. apply IZR_le in H1. pose proof (loss_above loss Hg).
    assert ((1 - exp (- loss)) * width b < loss * width b) by (apply Rmult_lt_compat_r; auto). lra.
  - destruct (Z.leb_spec (v + 2) (most - most * most / 2 ^ (b + 1) - 1)) as [H2|H2].
    + injection H as <-. apply IZR_le in H2. rewrite plus_IZR, !minus_IZR in H2.
      assert (0 < 2 ^ (b + 1))%Z as Hp by (apply Z.pow_pos_nonneg; lia).
      pose proof (div_floor (most * most) (2 ^ (b + 1)) Hp) as D. rewrite mult_IZR in D.
      assert (IZR (2 ^ (b + 1)) = 2 * width b) as E2.
      { unfold width. rewrite Z.pow_add_r, mult_IZR by lia. simpl. lra. }
      rewrite E2 in D. pose proof (loss_below loss (Rlt_le _ _ Hg)) as HL.
      assert (loss * width b * (loss * width b) <= IZR most * IZR most) as Hsq.
      { apply Rmult_le_compat; try (apply Rmult_le_pos; lra); lra. }
      assert (loss * loss / 2 * width b <= IZR most * IZR most / (2 * width b)) as Hq.
      { apply Rmult_le_reg_r with (2 * width b); [lra|].
        replace (IZR most * IZR most / (2 * width b) * (2 * width b)) with (IZR most * IZR most) by (field; lra). lra. }
      assert ((loss - loss * loss / 2) * width b <= (1 - exp (- loss)) * width b) by (apply Rmult_le_compat_r; lra).
      assert (IZR v + 1 < IZR (floor b) + 1) as HF by lra. apply lt_IZR. lra.
    + destruct (Z.eqb_spec v (floor b)); [discriminate|]. injection H as <-.
      destruct (Z.ltb_spec (floor b) v); lia.
Qed.

Lemma keep_in : forall b v a, (0 <= b)%Z -> (0 <= v < 2 ^ b)%Z -> keep floor n d b v = Some a ->
  (fun x : bool => x) a = true -> (1 - exp (- loss)) * width b <= IZR v /\ IZR v + 1 <= 1 * width b.
Proof.
  intros b v a Hb Hv H E. cbv beta in E. subst a. split.
  - destruct (Z.eq_dec n 0) as [E|E].
    + unfold loss. rewrite E. unfold Rdiv. rewrite Rmult_0_l, Ropp_0, exp_0. rewrite Rminus_diag_eq by auto.
      rewrite Rmult_0_l. apply (IZR_le 0). lia.
    + pose proof (keep_tests b v true Hb Hv ltac:(lia) H) as K. simpl in K.
      destruct (floor_right b Hb ltac:(lia)) as [_ F]. assert (IZR (floor b) + 1 <= IZR v); [|lra].
      rewrite <- plus_IZR. apply IZR_le. lia.
  - rewrite Rmult_1_l. unfold width. rewrite <- plus_IZR. apply IZR_le. lia.
Qed.

Lemma keep_out : forall b v a, (0 <= b)%Z -> (0 <= v < 2 ^ b)%Z -> keep floor n d b v = Some a ->
  (fun x : bool => x) a = false -> IZR v + 1 <= (1 - exp (- loss)) * width b \/ 1 * width b <= IZR v.
Proof.
  intros b v a Hb Hv H E. cbv beta in E. subst a. left.
  destruct (Z.eq_dec n 0) as [E|E]; [unfold keep in H; rewrite E in H; discriminate|].
  pose proof (keep_tests b v false Hb Hv ltac:(lia) H) as K. simpl in K.
  destruct (floor_right b Hb ltac:(lia)) as [F _]. apply Rle_trans with (IZR (floor b)); auto.
  rewrite <- plus_IZR. apply IZR_le. lia.
Qed.

Lemma keep_open : forall b v, (0 <= b)%Z -> (0 <= v < 2 ^ b)%Z -> keep floor n d b v = None ->
  (IZR v + 1 <= (1 - exp (- loss)) * width b \/ 1 * width b <= IZR v) \/
  in_cell (1 - exp (- loss)) b v = 1 \/ in_cell 1 b v = 1.
Proof.
  intros b v Hb Hv H. right. left. unfold keep in H. destruct (Z.eqb_spec n 0); [discriminate|].
  destruct (_ <=? v)%Z; [discriminate|]. destruct (_ <=? _)%Z in H; [discriminate|].
  destruct (Z.eqb_spec v (floor b)) as [->|]; [|discriminate].
  destruct (floor_right b Hb ltac:(lia)) as [F1 F2]. unfold in_cell. destruct Rle_dec; [destruct Rlt_dec|]; lra.
Qed.

Definition kept (bits : Z) (fuel : nat) : R := law_by word_bits bool (keep floor n d) (fun x => x) bits fuel.

(* `_keep` keeps with the chance exp(- loss). *)
Theorem kept_law : forall bits fuel, (0 <= bits)%Z ->
  exp (- loss) - 2 / (width bits * INR (count word_bits) ^ fuel) <= kept bits fuel <= exp (- loss).
Proof.
  intros bits fuel Hb. pose proof chance_kept. unfold kept.
  replace (exp (- loss)) with (1 - (1 - exp (- loss))) by ring. split.
  - apply (first_rate word_bits ltac:(lia) bool (keep floor n d) (fun x => x) (1 - exp (- loss)) 1);
      auto; try lra; [apply keep_in | apply keep_out | apply keep_open].
  - apply (first_law word_bits ltac:(lia) bool (keep floor n d) (fun x => x) (1 - exp (- loss)) 1);
      auto; try lra; [apply keep_in | apply keep_out].
Qed.

Lemma kept_nonneg : forall bits fuel, 0 <= kept bits fuel.
Proof. intros. unfold kept, law_by. apply mean_nonneg. intros. apply chance_nonneg. Qed.
End Keep.

(* ---- Blocks and rejection ---- *)
Section Wide.
Variable word_bits : Z.
Hypothesis word_bits_pos : (1 < word_bits)%Z.
Variable E : nat -> R.                        (* the exponent of a magnitude *)
Variables shift keep_bits : Z.
Hypothesis shift_nonneg : (0 <= shift)%Z.
Hypothesis keep_nonneg : (0 <= keep_bits)%Z.
Hypothesis word_room : (shift + keep_bits <= word_bits)%Z.
Variable C : nat -> R.
Hypothesis C_range : forall k, 0 <= C k < 1.
Hypothesis C_rises : forall k, C k <= C (S k).
Variable table : Z -> list Z.
Hypothesis floors : forall b k, (0 <= b)%Z ->
  let t := nth k (table b) (2 ^ b - 1)%Z in IZR t <= C k * width b < IZR t + 1.
Variable total : R.                           (* the sum of the weights of all blocks *)
Hypothesis total_pos : 0 < total.
Definition block_size : nat := Z.to_nat (2 ^ shift).
Hypothesis blocks : forall k, C k - before C k = exp (- E (k * block_size)) / total.
Variable loss_of : Z -> Z -> Z * Z.
Variable floor : Z -> Z -> Z -> Z.
Hypothesis loss_right : forall k u, (u < block_size)%nat ->
  let (n, d) := loss_of (Z.of_nat k) (Z.of_nat u) in (0 <= n)%Z /\ (0 < d)%Z /\
    IZR n / IZR d = E (k * block_size + u) - E (k * block_size).
Hypothesis floor_right : forall n d b, (0 < n)%Z -> (0 < d)%Z -> (0 <= b)%Z ->
  IZR (floor n d b) <= (1 - exp (- (IZR n / IZR d))) * width b < IZR (floor n d b) + 1.

Definition again (o : option Z) : bool := match o with None => true | Some _ => false end.
Definition gives (x : Z) (o : option Z) : bool := match o with Some y => Z.eqb y x | None => false end.

Definition one_trial (fuel : nat) : prog (option Z) := trial word_bits table floor loss_of shift keep_bits fuel.

Lemma block_size_Z : Z.of_nat block_size = (2 ^ shift)%Z.
Proof. unfold block_size. rewrite Z2Nat.id; auto. apply Z.pow_nonneg. lia. Qed.

Lemma block_size_pos : (0 < block_size)%nat.
Proof. assert (0 < 2 ^ shift)%Z by (apply Z.pow_pos_nonneg; lia). pose proof block_size_Z. lia. Qed.

(* The low bits of a word are a uniform offset, and its high bits decide; bits between them are not used. *)
Lemma offset_and_decision : forall (u : nat) (f : Z -> R), (u < block_size)%nat ->
  mean (count word_bits) (fun i => if Z.eqb (Z.of_nat i mod 2 ^ shift) (Z.of_nat u)
    then f (Z.of_nat i / 2 ^ (word_bits - keep_bits))%Z else 0) =
  mean (first_bits keep_bits) (fun i => f (Z.of_nat i)) / INR block_size.
Proof.
  intros u f Hu. set (low := (word_bits - keep_bits)%Z).
  assert (0 < 2 ^ shift)%Z as Hm by (apply Z.pow_pos_nonneg; lia).
  rewrite (mean_ext _ _ (fun i => (fun x y => if Z.eqb (y mod 2 ^ shift) (Z.of_nat u) then f x else 0)
    (Z.of_nat i / 2 ^ low)%Z (Z.of_nat i mod 2 ^ low)%Z)).
  - rewrite (word_parts word_bits keep_bits low (fun x y => if Z.eqb (y mod 2 ^ shift) (Z.of_nat u) then f x else 0))
      by (unfold low; lia).
    unfold Rdiv. rewrite <- mean_scale_right.
    apply mean_ext. intros i _.
    rewrite (mean_ext _ _ (fun j => f (Z.of_nat i) * (if Z.eqb (Z.of_nat j mod 2 ^ shift) (Z.of_nat u) then 1 else 0))).
    2: { intros j _. destruct (Z.eqb _ _); lra. }
    rewrite mean_scale. f_equal.
    assert (first_bits low = (first_bits (low - shift) * block_size)%nat) as EL.
    { unfold first_bits, block_size. rewrite <- Z2Nat.inj_mul by (apply Z.pow_nonneg; lia).
      rewrite <- Z.pow_add_r by (unfold low; lia). do 2 f_equal. lia. }
    rewrite EL, mean_pairs; [|apply first_pos; unfold low; lia | apply block_size_pos].
    rewrite (mean_ext _ _ (fun _ => / INR block_size)); [apply mean_const, first_pos; unfold low; lia|].
    intros h _. rewrite (mean_one block_size u); auto.
    + rewrite Nat2Z.inj_add, Nat2Z.inj_mul, block_size_Z, Z.add_comm, Z.mod_add, Z.mod_small, Z.eqb_refl
        by (pose proof block_size_Z; lia). unfold Rdiv. lra.
    + intros j Hj Hne. rewrite Nat2Z.inj_add, Nat2Z.inj_mul, block_size_Z, Z.add_comm, Z.mod_add, Z.mod_small
        by (pose proof block_size_Z; lia).
      destruct (Z.eqb_spec (Z.of_nat j) (Z.of_nat u)); auto. lia.
  - intros i _. replace ((Z.of_nat i mod 2 ^ low) mod 2 ^ shift)%Z with (Z.of_nat i mod 2 ^ shift)%Z; auto.
    replace (2 ^ low)%Z with (2 ^ shift * 2 ^ (low - shift))%Z.
    + rewrite Z.rem_mul_r by (try lia; apply Z.pow_pos_nonneg; unfold low; lia).
      rewrite Z.mul_comm, Z.mod_add, Z.mod_mod by lia. reflexivity.
    + rewrite <- Z.pow_add_r by (unfold low; lia). f_equal. lia.
Qed.

Definition block_of (x : Z) : nat := Z.to_nat (Z.abs x / 2 ^ shift).
Definition offset_of (x : Z) : nat := Z.to_nat (Z.abs x mod 2 ^ shift).
Definition keeps (x : Z) (fuel : nat) : R :=
  let (n, d) := loss_of (Z.of_nat (block_of x)) (Z.of_nat (offset_of x)) in kept word_bits n d (floor n d) keep_bits fuel.

Lemma offset_small : forall x, (offset_of x < block_size)%nat.
Proof.
  intros x. unfold offset_of. assert (0 < 2 ^ shift)%Z by (apply Z.pow_pos_nonneg; lia).
  pose proof (Z.mod_pos_bound (Z.abs x) (2 ^ shift) ltac:(auto)). pose proof block_size_Z. lia.
Qed.

Lemma parts_of : forall x, Z.abs x = (Z.of_nat (block_of x) * 2 ^ shift + Z.of_nat (offset_of x))%Z.
Proof.
  intros x. assert (0 < 2 ^ shift)%Z by (apply Z.pow_pos_nonneg; lia). unfold block_of, offset_of.
  pose proof (Z.mod_pos_bound (Z.abs x) (2 ^ shift) ltac:(auto)).
  pose proof (Z.div_pos (Z.abs x) (2 ^ shift) ltac:(lia) ltac:(auto)).
  rewrite !Z2Nat.id by lia. pose proof (Z.div_mod (Z.abs x) (2 ^ shift) ltac:(lia)). lia.
Qed.

(* A trial gives x if the sign is that of x, and block, offset and decision are. *)
Theorem trial_chance : forall fuel x,
  chance word_bits (one_trial fuel) (gives x) =
    magnitude word_bits table (half word_bits) fuel (block_of x) / 2 * (keeps x fuel / INR block_size).
Proof.
  intros fuel x. unfold one_trial, trial. cbn [chance].
  set (D := fun v => decide_by word_bits Z (lookup table) fuel (word_bits - 1) v).
  set (B := block_of x). set (u := offset_of x).
  destruct (loss_of (Z.of_nat B) (Z.of_nat u)) as [n d] eqn:EL.
  set (K := fun v => chance word_bits (decide_by word_bits bool (keep (floor n d) n d) fuel keep_bits v) (fun b => b)).
  assert (forall w1 w2, (0 <= w1)%Z -> (0 <= w2)%Z -> chance word_bits
      (bind (D (w1 / 2)%Z) (fun block => let (n, d) := loss_of block (w2 mod 2 ^ shift) in
         bind (decide_by word_bits bool (keep (floor n d) n d) fuel keep_bits (w2 / 2 ^ (word_bits - keep_bits)))
           (fun kept => Ret (if kept && negb ((block * 2 ^ shift + w2 mod 2 ^ shift =? 0) && Z.odd w1)
             then Some (signed w1 (block * 2 ^ shift + w2 mod 2 ^ shift)) else None)))) (gives x) =
      chance word_bits (D (w1 / 2)%Z) (fun a => Z.eqb a (Z.of_nat B)) *
      ((if Bool.eqb (Z.odd w1) (x <? 0)%Z then 1 else 0) *
       (if Z.eqb (w2 mod 2 ^ shift) (Z.of_nat u) then K (w2 / 2 ^ (word_bits - keep_bits))%Z else 0))) as HW.
  { intros w1 w2 Hw1 Hw2. assert (0 < 2 ^ shift)%Z as Hm by (apply Z.pow_pos_nonneg; lia).
    pose proof (Z.mod_pos_bound w2 (2 ^ shift) Hm) as Ho. pose proof (parts_of x) as Px. fold B u in Px.
    pose proof (offset_small x) as Hu. fold u in Hu. pose proof block_size_Z as Hbs.
    assert (forall p : prog Z, (forall f b v, (0 <= b)%Z -> p = decide_by word_bits Z (lookup table) f b v -> True)) as _ by auto.
    assert (forall f b v, (0 <= b)%Z -> chance word_bits
      (bind (decide_by word_bits Z (lookup table) f b v) (fun block => let (n, d) := loss_of block (w2 mod 2 ^ shift) in
         bind (decide_by word_bits bool (keep (floor n d) n d) fuel keep_bits (w2 / 2 ^ (word_bits - keep_bits)))
           (fun kept => Ret (if kept && negb ((block * 2 ^ shift + w2 mod 2 ^ shift =? 0) && Z.odd w1)
             then Some (signed w1 (block * 2 ^ shift + w2 mod 2 ^ shift)) else None)))) (gives x) =
      chance word_bits (decide_by word_bits Z (lookup table) f b v) (fun a => Z.eqb a (Z.of_nat B)) *
      ((if Bool.eqb (Z.odd w1) (x <? 0)%Z then 1 else 0) *
       (if Z.eqb (w2 mod 2 ^ shift) (Z.of_nat u) then K (w2 / 2 ^ (word_bits - keep_bits))%Z else 0))) as HF.
    2: { apply HF. lia. }
    assert (forall block, (0 <= block)%Z -> chance word_bits (let (n, d) := loss_of block (w2 mod 2 ^ shift) in
         bind (decide_by word_bits bool (keep (floor n d) n d) fuel keep_bits (w2 / 2 ^ (word_bits - keep_bits)))
           (fun kept => Ret (if kept && negb ((block * 2 ^ shift + w2 mod 2 ^ shift =? 0) && Z.odd w1)
             then Some (signed w1 (block * 2 ^ shift + w2 mod 2 ^ shift)) else None))) (gives x) =
      (if Z.eqb block (Z.of_nat B) then 1 else 0) *
      ((if Bool.eqb (Z.odd w1) (x <? 0)%Z then 1 else 0) *
       (if Z.eqb (w2 mod 2 ^ shift) (Z.of_nat u) then K (w2 / 2 ^ (word_bits - keep_bits))%Z else 0))) as HB.
    { intros block Hblock. destruct (loss_of block (w2 mod 2 ^ shift)) as [n' d'] eqn:EL'.
      set (off := (w2 mod 2 ^ shift)%Z) in *.
      set (good := ((Z.eqb block (Z.of_nat B) && Z.eqb off (Z.of_nat u) && Bool.eqb (Z.odd w1) (x <? 0)%Z))%bool).
      rewrite (bind_point word_bits _ _ _ _ (fun b => b) (if good then 1 else 0)).
      - unfold good. destruct (Z.eqb_spec block (Z.of_nat B)) as [->|]; simpl; [|lra].
        destruct (Z.eqb_spec off (Z.of_nat u)) as [->|]; simpl; [|lra].
        rewrite EL in EL'. injection EL' as <- <-. unfold K.
        destruct (Bool.eqb (Z.odd w1) (x <? 0)%Z); lra.
      - intros a ->. reflexivity.
      - intros a ->. cbn [chance andb]. unfold good, signed.
        destruct (Z.eqb_spec block (Z.of_nat B)) as [Eb|Eb]; destruct (Z.eqb_spec off (Z.of_nat u)) as [Eo|Eo];
          cbn [andb].
        1: { rewrite Eb, Eo, <- Px.
             destruct (Z.odd w1); destruct (Z.ltb_spec x 0); destruct (Z.eqb_spec (Z.abs x) 0); cbn [gives andb negb Bool.eqb];
               try (destruct (Z.eqb_spec (- Z.abs x) x)); try (destruct (Z.eqb_spec (Z.abs x) x)); try lra; exfalso; lia. }
        all: assert (0 <= block * 2 ^ shift)%Z as Hpos by (apply Z.mul_nonneg_nonneg; lia).
        all: assert (Z.abs x <> block * 2 ^ shift + off)%Z as Hne by
          (intros Q; rewrite Px in Q;
           assert (Z.of_nat B = block) by
             (rewrite (Z.div_unique_pos (Z.of_nat B * 2 ^ shift + Z.of_nat u) (2 ^ shift) (Z.of_nat B) (Z.of_nat u)) by lia;
              rewrite Q; symmetry; apply Z.div_unique_pos with off; lia); nia).
        all: destruct (negb _); cbn [gives]; auto;
          destruct (Z.odd w1); match goal with |- (if (?p =? ?y)%Z then _ else _) = _ => destruct (Z.eqb_spec p y) end;
          auto; exfalso; lia. }
    induction f as [|f IHf]; intros b v Hb; cbn [decide_by]; destruct (lookup table b v) as [a|] eqn:Ea; cbn [bind chance].
    - rewrite HB; [reflexivity | eapply lookup_nonneg; eauto].
    - lra.
    - rewrite HB; [reflexivity | eapply lookup_nonneg; eauto].
    - rewrite <- mean_scale_right. apply mean_ext. intros i _. apply IHf. lia. }
  rewrite (mean_ext _ _ (fun i => (fun v s => chance word_bits (D v) (fun a => Z.eqb a (Z.of_nat B)) *
    ((if Bool.eqb s (x <? 0)%Z then 1 else 0) * (keeps x fuel / INR block_size))) (Z.of_nat i / 2)%Z (Z.odd (Z.of_nat i)))).
  - rewrite (word_sign word_bits ltac:(lia) (fun v s => chance word_bits (D v) (fun a => Z.eqb a (Z.of_nat B)) *
      ((if Bool.eqb s (x <? 0)%Z then 1 else 0) * (keeps x fuel / INR block_size)))).
    set (c := keeps x fuel / INR block_size). unfold magnitude, law_by.
    match goal with |- _ = ?m / 2 * c => replace (m / 2 * c) with (m * (c / 2)) by lra end.
    rewrite <- mean_scale_right. apply mean_ext.
    intros i _. unfold D, half. destruct (Z.ltb_spec x 0); cbn [Bool.eqb]; lra.
  - intros i _. cbv beta. rewrite (mean_ext _ _ (fun j => chance word_bits (D (Z.of_nat i / 2)%Z) (fun a => Z.eqb a (Z.of_nat B)) *
      ((if Bool.eqb (Z.odd (Z.of_nat i)) (x <? 0)%Z then 1 else 0) *
       (if Z.eqb (Z.of_nat j mod 2 ^ shift) (Z.of_nat u) then K (Z.of_nat j / 2 ^ (word_bits - keep_bits))%Z else 0)))).
    + rewrite !mean_scale. rewrite (offset_and_decision u K (offset_small x)).
      unfold keeps. fold B u. rewrite EL. reflexivity.
    + intros j _. apply HW; lia.
Qed.

Definition target (x : Z) : R := exp (- E (Z.to_nat (Z.abs x))) / (2 * INR block_size * total).

Definition slack (fuel : nat) : R :=
  2 / (width (half word_bits) * INR (count word_bits) ^ fuel) + 2 / (width keep_bits * INR (count word_bits) ^ fuel).

(* The chance that one trial gives x is the weight of x over a constant, but for what is not decided after `fuel` words. *)
Theorem trial_law : forall fuel x,
  target x - slack fuel <= chance word_bits (one_trial fuel) (gives x) <= target x.
Proof.
  intros fuel x. rewrite trial_chance. set (B := block_of x). set (u := offset_of x).
  pose proof (table_law word_bits ltac:(lia) C C_range C_rises table floors (half word_bits) fuel B
    ltac:(unfold half; lia)) as T. rewrite blocks in T.
  pose proof (magnitude_nonneg word_bits table (half word_bits) fuel B) as T0.
  pose proof (loss_right B u (offset_small x)) as HL.
  assert (exp (- (E (B * block_size + u) - E (B * block_size))) -
      2 / (width keep_bits * INR (count word_bits) ^ fuel) <= keeps x fuel <=
      exp (- (E (B * block_size + u) - E (B * block_size))) /\ 0 <= keeps x fuel /\
      0 < exp (- (E (B * block_size + u) - E (B * block_size))) <= 1) as (K & K0 & K1).
  { unfold keeps. fold B u. destruct (loss_of (Z.of_nat B) (Z.of_nat u)) as [n d]. destruct HL as (Hn & Hd & HE).
    rewrite <- HE. split; [|split].
    - apply (kept_law word_bits ltac:(lia) n d Hn Hd (floor n d)); auto. intros b Hb Hn0. apply floor_right; auto.
    - apply (kept_nonneg word_bits n d (floor n d)).
    - apply (chance_kept n d Hn Hd). }
  assert (B * block_size + u = Z.to_nat (Z.abs x))%nat as Ex.
  { pose proof (parts_of x) as P. fold B u in P. rewrite <- block_size_Z in P. lia. }
  rewrite Ex in *. unfold target, slack.
  set (e := exp (- (E (Z.to_nat (Z.abs x)) - E (B * block_size)))) in *.
  set (t := exp (- E (B * block_size)) / total) in *.
  assert (exp (- E (Z.to_nat (Z.abs x))) = exp (- E (B * block_size)) * e) as ->.
  { unfold e. rewrite <- exp_plus. f_equal. ring. }
  pose proof block_size_pos as Hm. assert (1 <= INR block_size) as Hm1 by (apply (le_INR 1); lia).
  replace (exp (- E (B * block_size)) * e / (2 * INR block_size * total)) with (t * e * (/ (2 * INR block_size)))
    by (unfold t; field; split; lra).
  set (m := magnitude word_bits table (half word_bits) fuel B) in *. set (k := keeps x fuel) in *.
  replace (m / 2 * (k / INR block_size)) with (m * k * (/ (2 * INR block_size))) by (field; lra).
  assert (0 < / (2 * INR block_size) <= 1) as Hi.
  { split; [apply Rinv_0_lt_compat; lra|]. rewrite <- Rinv_1. apply Rinv_le_contravar; lra. }
  set (e1 := 2 / (width (half word_bits) * INR (count word_bits) ^ fuel)) in *.
  set (e2 := 2 / (width keep_bits * INR (count word_bits) ^ fuel)) in *.
  assert (0 <= e1 /\ 0 <= e2) as [P1 P2].
  { assert (0 < INR (count word_bits) ^ fuel) by (apply pow_lt, lt_0_INR, count_pos; lia).
    split; (apply Rmult_le_pos; [lra|]; left; apply Rinv_0_lt_compat, Rmult_lt_0_compat; auto; apply width_pos; unfold half; lia). }
  assert (t <= 1) as T1.
  { pose proof (C_range B). pose proof (before_range C C_range C_rises B). unfold t. rewrite <- blocks. lra. }
  split.
  - assert (t * e - (e1 + e2) <= m * k) as H1 by nra.
    assert ((t * e - (e1 + e2)) * / (2 * INR block_size) <= m * k * / (2 * INR block_size)) by (apply Rmult_le_compat_r; lra).
    assert ((e1 + e2) * / (2 * INR block_size) <= e1 + e2) by (assert (0 <= e1 + e2) by lra; nra). nra.
  - apply Rmult_le_compat_r; [lra|]. apply Rmult_le_compat; lra.
Qed.

(* Trials are repeated until one is kept: what comes out has the law of one that is. *)
Theorem wide_geometric : forall fuel tries x,
  chance word_bits (wide (one_trial fuel) tries) (is x) =
    chance word_bits (one_trial fuel) (gives x) * sum tries (fun i => chance word_bits (one_trial fuel) again ^ i).
Proof.
  intros fuel tries x. set (p := one_trial fuel).
  induction tries as [|tries IH]; [simpl; lra|].
  assert (forall q : prog (option Z), chance word_bits (bind q (fun o => match o with Some y => Ret y | None => wide p tries end)) (is x) =
    chance word_bits q (gives x) + chance word_bits q again * chance word_bits (wide p tries) (is x)) as H.
  { induction q as [[y|]| |next IHq]; simpl; try lra.
    - unfold is. destruct (Z.eqb y x); lra.
    - rewrite <- mean_scale_right, <- mean_plus. apply mean_ext. auto. }
  cbn [wide]. rewrite H, IH.
  assert (sum (S tries) (fun i => chance word_bits p again ^ i) =
    1 + chance word_bits p again * sum tries (fun i => chance word_bits p again ^ i)) as ->; [|ring].
  generalize (chance word_bits p again). intros z. clear. induction tries as [|tries IH]; [simpl; lra|].
  simpl in *. set (s := sum tries (fun i => z ^ i)) in *. rewrite IH at 1. ring.
Qed.

(* Whatever is allowed, x and y come in the proportion in which one trial gives them: by `trial_law` that of their weights. *)
Theorem wide_law : forall fuel tries x y,
  chance word_bits (wide (one_trial fuel) tries) (is x) * chance word_bits (one_trial fuel) (gives y) =
  chance word_bits (wide (one_trial fuel) tries) (is y) * chance word_bits (one_trial fuel) (gives x).
Proof. intros. rewrite !wide_geometric. ring. Qed.
End Wide.

(* ---- The laws that are drawn ---- *)
(* Discrete Laplace of rate r: the cumulative chances of the magnitude, and of a draw that is not negative. *)
Section Laplace.
Variable r : R.
Hypothesis r_pos : 0 < r.
Definition q := exp (- r).

Lemma q_range : 0 < q < 1.
Proof. unfold q. split; [apply exp_pos|]. rewrite <- exp_0. apply exp_increasing. lra. Qed.

Lemma q_pow : forall k, q ^ k = exp (- (INR k * r)).
Proof.
  induction k as [|k IH]; [simpl; rewrite Rmult_0_l, Ropp_0, exp_0; reflexivity|].
  rewrite S_INR. simpl. rewrite IH. unfold q. rewrite <- exp_plus. f_equal. ring.
Qed.

Definition folded_C (k : nat) : R := 1 - 2 * q ^ (S k) / (1 + q).
Definition sided_C (k : nat) : R := 1 - q ^ (S k).

Lemma pow_range : forall k, 0 < q ^ k <= 1.
Proof.
  intros k. pose proof q_range. split; [apply pow_lt; lra|]. induction k; simpl; [lra|].
  assert (0 < q ^ k) by (apply pow_lt; lra). nra.
Qed.

Lemma folded_range : forall k, 0 <= folded_C k < 1.
Proof.
  intros k. unfold folded_C. pose proof q_range. pose proof (pow_range k). simpl pow.
  assert (0 < 2 * (q * q ^ k) / (1 + q) <= 1); [|lra]. split.
  - apply Rmult_lt_0_compat; [|apply Rinv_0_lt_compat; lra]. nra.
  - apply Rmult_le_reg_r with (1 + q); [lra|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. nra.
Qed.

Lemma sided_range : forall k, 0 <= sided_C k < 1.
Proof. intros k. unfold sided_C. pose proof (pow_range (S k)). lra. Qed.

Lemma pow_falls : forall k, q ^ (S k) <= q ^ k.
Proof. intros. simpl. pose proof q_range. pose proof (pow_range k). nra. Qed.

Lemma folded_rises : forall k, folded_C k <= folded_C (S k).
Proof.
  intros k. unfold folded_C. pose proof q_range. pose proof (pow_falls (S k)).
  assert (2 * q ^ S (S k) / (1 + q) <= 2 * q ^ S k / (1 + q)); [|lra].
  apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat|]; lra.
Qed.

Lemma sided_rises : forall k, sided_C k <= sided_C (S k).
Proof. intros k. unfold sided_C. pose proof (pow_falls (S k)). lra. Qed.

(* x has the chance exp(-r|x|) times a constant. *)
Theorem laplace_narrow : forall x, folded_law folded_C x = exp (- (r * IZR (Z.abs x))) * ((1 - q) / (1 + q)).
Proof.
  intros x. pose proof q_range. unfold folded_law.
  assert (exp (- (r * IZR (Z.abs x))) = q ^ Z.to_nat (Z.abs x)) as ->.
  { rewrite q_pow. rewrite INR_IZR_INZ, Z2Nat.id by lia. do 2 f_equal. ring. }
  destruct (Z.eqb_spec x 0) as [->|Hx].
  - unfold folded_C. simpl. field. lra.
  - destruct (Z.to_nat (Z.abs x)) as [|k] eqn:Ek; [lia|]. unfold before, folded_C. simpl. field. lra.
Qed.

Theorem laplace_blocks : forall k, sided_C k - before sided_C k = exp (- (INR k * r)) / (1 / (1 - q)).
Proof.
  intros k. pose proof q_range. rewrite <- q_pow. unfold sided_C. destruct k as [|k]; unfold before; simpl; field; lra.
Qed.
End Laplace.

(* Any weights, as for Gaussian noise: cumulative chances are partial sums over the total. *)
Section Weights.
Variable w : nat -> R.
Hypothesis w_pos : forall k, 0 < w k.
Variable total : R.
Hypothesis total_above : forall n, w 0%nat + 2 * sum n (fun i => w (S i)) < total.
Definition weights_C (k : nat) : R := (w 0%nat + 2 * sum k (fun i => w (S i))) / total.

Lemma weights_total : 0 < total.
Proof. pose proof (total_above 0). simpl in H. pose proof (w_pos 0). lra. Qed.

Lemma weights_range : forall k, 0 <= weights_C k < 1.
Proof.
  intros k. pose proof weights_total as Ht. unfold weights_C. pose proof (w_pos 0).
  assert (0 <= sum k (fun i => w (S i))) by (apply sum_nonneg; intros; left; auto). split.
  - apply Rmult_le_pos; [lra | left; apply Rinv_0_lt_compat; auto].
  - apply Rmult_lt_reg_r with total; auto. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra.
    pose proof (total_above k). lra.
Qed.

Lemma weights_rise : forall k, weights_C k <= weights_C (S k).
Proof.
  intros k. pose proof weights_total. unfold weights_C. simpl. pose proof (w_pos (S k)).
  apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat; auto | lra].
Qed.

Theorem weights_narrow : forall x, folded_law weights_C x = w (Z.to_nat (Z.abs x)) / total.
Proof.
  intros x. pose proof weights_total. unfold folded_law. destruct (Z.eqb_spec x 0) as [->|Hx].
  - unfold weights_C. simpl. field. lra.
  - destruct (Z.to_nat (Z.abs x)) as [|k] eqn:Ek; [lia|]. unfold before, weights_C. simpl. field. lra.
Qed.
End Weights.

(* ---- The thresholds of Laplace noise are floors. ---- *)
Section Thresholds.
Variables (guard bits : Z).
Hypothesis guard_nonneg : (0 <= guard)%Z.
Hypothesis bits_nonneg : (0 <= bits)%Z.
Definition precision := (bits + guard)%Z.
Variables (r : R) (low high : Z).
Hypothesis r_pos : 0 < r.
Hypothesis q_in : IZR low <= IZR (2 ^ precision) * q r <= IZR high.
Hypothesis low_nonneg : (0 <= low)%Z.
Hypothesis high_most : (high <= 2 ^ precision)%Z.

Lemma tails_right : forall fuel tail error (t : R) l,
  (0 <= tail)%Z -> (tail <= 2 ^ precision)%Z -> 0 < t -> IZR tail <= t <= IZR (tail + error) ->
  tails fuel tail error low (high - low + 1) precision guard (2 ^ bits - 1) = Some l ->
  forall k, let fl := nth k l (2 ^ bits - 1)%Z in
    IZR fl <= width bits - t * q r ^ k / IZR (2 ^ guard) < IZR fl + 1.
Proof.
  induction fuel as [|fuel IH]; intros tail error t l Ht0 Ht1 Htp Ht H k; [discriminate|]. cbn [tails] in H.
  assert (0 < 2 ^ guard)%Z as HG by (apply Z.pow_pos_nonneg; lia).
  assert (0 < IZR (2 ^ guard)) as HGR by (apply (IZR_lt 0); auto).
  pose proof (q_range r r_pos) as Hq.
  set (units := ((tail + error - 1) / 2 ^ guard)%Z) in *.
  assert (0 < tail + error)%Z as Hte by (apply lt_IZR; lra).
  pose proof (Z.div_mod (tail + error - 1) (2 ^ guard) ltac:(lia)) as DM.
  pose proof (Z.mod_pos_bound (tail + error - 1) (2 ^ guard) HG) as MB. fold units in DM.
  assert (tail + error <= (units + 1) * 2 ^ guard)%Z as Hup by nia.
  apply IZR_le in Hup. rewrite mult_IZR, (plus_IZR units 1) in Hup.
  destruct (Z.eqb_spec units 0) as [E0|E0].
  - injection H as <-. assert (nth k (@nil Z) (2 ^ bits - 1)%Z = 2 ^ bits - 1)%Z as -> by (destruct k; auto).
    cbv zeta. rewrite minus_IZR. fold (width bits). rewrite E0, Rplus_0_l, Rmult_1_l in Hup.
    pose proof (pow_range r r_pos k) as Hp.
    assert (0 < t * q r ^ k / IZR (2 ^ guard) <= 1); [|lra]. split.
    + apply Rmult_lt_0_compat; [apply Rmult_lt_0_compat; lra | apply Rinv_0_lt_compat; auto].
    + apply Rmult_le_reg_r with (IZR (2 ^ guard)); auto. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. nra.
  - destruct (Z.eqb_spec ((tail - 1) / 2 ^ guard) units) as [Eu|]; [|discriminate].
    destruct (tails fuel _ _ _ _ _ _ _) as [rest|] eqn:ER; [|discriminate]. injection H as <-.
    destruct k as [|k].
    + cbn [nth pow]. rewrite Rmult_1_r. cbv zeta. rewrite !minus_IZR. fold (width bits).
      pose proof (Z.div_mod (tail - 1) (2 ^ guard) ltac:(lia)) as DM2.
      pose proof (Z.mod_pos_bound (tail - 1) (2 ^ guard) HG) as MB2. rewrite Eu in DM2.
      assert (units * 2 ^ guard + 1 <= tail)%Z as Hlow by nia. apply IZR_le in Hlow.
      rewrite plus_IZR, mult_IZR in Hlow.
      assert (IZR units < t / IZR (2 ^ guard) <= IZR units + 1); [|lra]. split.
      * apply Rmult_lt_reg_r with (IZR (2 ^ guard)); auto. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra.
      * apply Rmult_le_reg_r with (IZR (2 ^ guard)); auto. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra.
    + cbn [nth]. replace (t * q r ^ S k) with (t * q r * q r ^ k) by (simpl; ring).
      set (W := (2 ^ precision)%Z) in *.
      assert (0 < W)%Z as HW by (apply Z.pow_pos_nonneg; unfold precision; lia).
      assert (0 < IZR W) as HWR by (apply (IZR_lt 0); auto).
      assert (low <= high)%Z as Hlh by (apply le_IZR; lra).
      pose proof (div_floor (tail * low) W HW) as Hf. rewrite mult_IZR in Hf.
      assert (IZR tail * IZR low / IZR W <= t * q r) as Hlo.
      { apply Rmult_le_reg_r with (IZR W); auto. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra.
        assert (0 <= IZR tail) by (apply (IZR_le 0); auto). assert (0 <= IZR low) by (apply (IZR_le 0); auto). nra. }
      assert (t * q r <= IZR tail * IZR low / IZR W + IZR (high - low) + IZR error) as Hhi.
      { rewrite minus_IZR. apply Rmult_le_reg_r with (IZR W); auto.
        replace ((IZR tail * IZR low / IZR W + (IZR high - IZR low) + IZR error) * IZR W) with
          (IZR tail * IZR low + (IZR high - IZR low) * IZR W + IZR error * IZR W) by (field; lra).
        rewrite plus_IZR in Ht. assert (0 <= IZR error) by (assert (0 <= error)%Z; [apply le_IZR; lra | apply (IZR_le 0); auto]).
        assert (IZR tail <= IZR W) by (apply IZR_le; auto). assert (IZR high <= IZR W) by (apply IZR_le; auto).
        assert (0 <= IZR low) by (apply (IZR_le 0); auto). assert (IZR low <= IZR high) by (apply IZR_le; auto).
        assert (0 <= IZR tail) by (apply (IZR_le 0); auto).
        apply Rle_trans with ((IZR tail + IZR error) * IZR high).
        - replace (t * q r * IZR W) with (t * (IZR W * q r)) by ring. apply Rmult_le_compat; try lra.
        - nra. }
      refine (IH _ _ (t * q r) rest _ _ _ _ ER k).
      * apply Z.div_pos; nia.
      * apply Z.div_le_upper_bound; auto. nia.
      * apply Rmult_lt_0_compat; lra.
      * split; [lra|]. rewrite !plus_IZR, minus_IZR in *. lra.
Qed.
End Thresholds.

(* What `_laplace_thresholds` returns are the floors of 2^bits C(k). *)
Theorem laplace_thresholds_right : forall fuel n d bits guard folded l, (0 < n)%Z -> (0 < d)%Z -> (0 <= bits)%Z -> (0 <= guard)%Z ->
  laplace_thresholds fuel n d bits guard folded = Some l ->
  forall k, let fl := nth k l (2 ^ bits - 1)%Z in
    IZR fl <= (if folded then folded_C (IZR n / IZR d) k else sided_C (IZR n / IZR d) k) * width bits < IZR fl + 1.
Proof.
  intros fuel n d bits guard folded l Hn Hd Hb Hg H k. unfold laplace_thresholds in H.
  set (W := (2 ^ (bits + guard))%Z) in *. set (r := IZR n / IZR d) in *.
  assert (0 < r) as Hr by (apply Rmult_lt_0_compat; [apply (IZR_lt 0); auto | apply Rinv_0_lt_compat, (IZR_lt 0); auto]).
  destruct (exp_bounds fuel n d (bits + guard)) as [[low high]|] eqn:E; [|discriminate].
  pose proof (exp_enclosed fuel n d (bits + guard) low high ltac:(lia) Hd ltac:(lia) E) as HE.
  fold W r in HE. fold (q r) in HE. pose proof (q_range r Hr) as Hq.
  assert (0 < W)%Z as HW by (apply Z.pow_pos_nonneg; lia). assert (0 < IZR W) as HWR by (apply (IZR_lt 0); auto).
  assert (0 <= low /\ high <= W)%Z as [Hlow Hhigh].
  { clear H. unfold exp_bounds in E. destruct (Z.eqb_spec n 0); [lia|].
    destruct (_ <=? _)%Z in E; [injection E as <- <-; fold W in HW; lia|].
    destruct (series _ _ _ _ _ _) as [[v e]|]; [|discriminate]. destruct (square _ _ _ _) as [v' e'].
    injection E as <- <-. fold W. lia. }
  set (G := (2 ^ guard)%Z). assert (0 < IZR G) as HG by (apply (IZR_lt 0), Z.pow_pos_nonneg; lia).
  assert (IZR W = width bits * IZR G) as EW by (unfold W, G, width; rewrite <- mult_IZR, <- Z.pow_add_r; auto).
  assert (IZR low <= IZR W) as HlW by (apply IZR_le; apply le_IZR; nra).
  destruct folded.
  - set (t := IZR W * (2 * q r / (1 + q r))).
    assert (0 < 2 * q r / (1 + q r) <= 1) as Hf.
    { split; [apply Rmult_lt_0_compat; [lra | apply Rinv_0_lt_compat; lra]|].
      apply Rmult_le_reg_r with (1 + q r); [lra|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra. }
    assert (0 <= IZR low) as HlR by (apply (IZR_le 0); auto).
    assert (forall a b, 0 <= a -> a <= b -> 2 * a * IZR W / (IZR W + a) <= 2 * b * IZR W / (IZR W + b)) as Hmono.
    { intros a b Ha Hab. apply Rmult_le_reg_r with ((IZR W + a) * (IZR W + b)); [apply Rmult_lt_0_compat; lra|].
      replace (2 * a * IZR W / (IZR W + a) * ((IZR W + a) * (IZR W + b))) with (2 * a * IZR W * (IZR W + b)) by (field; lra).
      replace (2 * b * IZR W / (IZR W + b) * ((IZR W + a) * (IZR W + b))) with (2 * b * IZR W * (IZR W + a)) by (field; lra).
      assert (a * IZR W * IZR W <= b * IZR W * IZR W) by (repeat apply Rmult_le_compat_r; lra). nra. }
    assert (t = 2 * (IZR W * q r) * IZR W / (IZR W + IZR W * q r)) as Et.
    { unfold t. field. split; nra. }
    set (tail := (low * (2 * W) / (W + low))%Z) in *.
    pose proof (div_floor (low * (2 * W)) (W + low) ltac:(lia)) as D1. fold tail in D1.
    assert (0 < W + high)%Z as HWh by (assert (0 <= high)%Z by (apply le_IZR; nra); lia).
    pose proof (div_floor (- (high * (2 * W))) (W + high) HWh) as D2.
    rewrite opp_IZR, !mult_IZR, plus_IZR in D2. rewrite !mult_IZR, plus_IZR in D1.
    assert (forall A B : Prop, A -> (A -> B) -> B) as cut by auto.
    eapply cut; [refine (tails_right guard bits Hg Hb r low high Hr HE Hlow Hhigh fuel tail _ t l _ _ _ _ H k)|intros T]; clear H.
    + apply Z.div_pos; nia.
    + unfold precision. fold W. apply Z.div_le_upper_bound; [lia|].
      assert (low <= W)%Z as L1 by (apply le_IZR; lra).
      pose proof (Z.mul_le_mono_nonneg_r low W W ltac:(lia) L1). lia.
    + apply Rmult_lt_0_compat; lra.
    + split.
      * pose proof (Hmono (IZR low) (IZR W * q r) HlR ltac:(lra)). rewrite Et.
        replace (IZR low * (2 * IZR W) / (IZR W + IZR low)) with (2 * IZR low * IZR W / (IZR W + IZR low)) in D1 by (field; lra). lra.
      * replace (tail + (- (- (high * (2 * W)) / (W + high)) - tail))%Z with (- (- (high * (2 * W)) / (W + high)))%Z by lia.
        rewrite opp_IZR. assert (0 <= IZR high) by nra.
        pose proof (Hmono (IZR W * q r) (IZR high) ltac:(apply Rmult_le_pos; lra) ltac:(lra)). rewrite Et.
        replace (- (IZR high * (2 * IZR W)) / (IZR W + IZR high)) with (- (2 * IZR high * IZR W / (IZR W + IZR high))) in D2 by (field; lra).
        lra.
    + cbv zeta in T |- *. fold G in T.
      replace (folded_C r k * width bits) with (width bits - t * q r ^ k / IZR G); [exact T|].
      unfold folded_C, t. rewrite EW. simpl pow. field. split; lra.
  - set (t := IZR W * q r).
    assert (forall A B : Prop, A -> (A -> B) -> B) as cut by auto.
    eapply cut; [refine (tails_right guard bits Hg Hb r low high Hr HE Hlow Hhigh fuel low (high - low) t l _ _ _ _ H k)|intros T]; clear H.
    + auto.
    + unfold precision. fold W. apply le_IZR. lra.
    + apply Rmult_lt_0_compat; lra.
    + replace (low + (high - low))%Z with high by lia. exact HE.
    + cbv zeta in T |- *. fold G in T.
      replace (sided_C r k * width bits) with (width bits - t * q r ^ k / IZR G); [exact T|].
      unfold sided_C, t. rewrite EW. simpl pow. field. lra.
Qed.

(* ---- A coin from an enclosure ---- *)
Section Flip.
Variable word_bits : Z.
Hypothesis word_bits_pos : (1 < word_bits)%Z.
Variables (p : R) (bounds : Z -> option (Z * Z)).
Hypothesis p_range : 0 <= p <= 1.
Hypothesis enclosed : forall b low high, (0 <= b)%Z -> bounds b = Some (low, high) -> IZR low <= p * width b <= IZR high.

(* `_flip` shows heads with probability p, but for the chance that it has not ended: no more, and less only by that. *)
Theorem flip_law : forall bits fuel, (0 <= bits)%Z ->
  law_by word_bits bool (flip_decide bounds) (fun x => x) bits fuel <= p <=
  law_by word_bits bool (flip_decide bounds) (fun x => x) bits fuel + open_by word_bits bool (flip_decide bounds) bits fuel.
Proof.
  intros bits fuel Hb. replace p with (p - 0) by ring.
  apply (first_law word_bits ltac:(lia) bool (flip_decide bounds) (fun x => x) 0 p); auto; try lra.
  - intros b v a Hb' Hv H E. cbv beta in E. subst a. unfold flip_decide in H.
    destruct (bounds b) as [[low high]|] eqn:EB; [|discriminate]. pose proof (enclosed b low high Hb' EB).
    destruct (Z.ltb_spec v low); [|destruct (high <=? v)%Z; discriminate]. split.
    + rewrite Rmult_0_l. apply (IZR_le 0). lia.
    + apply Rle_trans with (IZR low); [rewrite <- plus_IZR; apply IZR_le; lia | lra].
  - intros b v a Hb' Hv H E. cbv beta in E. subst a. unfold flip_decide in H. right.
    destruct (bounds b) as [[low high]|] eqn:EB; [|discriminate]. pose proof (enclosed b low high Hb' EB).
    destruct (Z.ltb_spec v low); [discriminate|]. destruct (Z.leb_spec high v) as [Hh|]; [|discriminate].
    apply IZR_le in Hh. lra.
Qed.
End Flip.

(* ==== The code as it is put together ==== *)
Definition exponent (power sn sd : Z) (k : nat) : R := INR k ^ Z.to_nat power / (IZR power * (IZR sn / IZR sd) ^ Z.to_nat power).

Lemma IZR_pow : forall a p, (0 <= p)%Z -> IZR (a ^ p) = IZR a ^ Z.to_nat p.
Proof. intros a p Hp. rewrite pow_IZR. f_equal. rewrite Z2Nat.id; auto. Qed.

Theorem pair_loss_right : forall power sn sd shift k u, (0 < power)%Z -> (0 < sn)%Z -> (0 < sd)%Z -> (0 <= shift)%Z ->
  let (n, d) := pair_loss power sn sd shift (Z.of_nat k) (Z.of_nat u) in (0 <= n)%Z /\ (0 < d)%Z /\
    IZR n / IZR d = exponent power sn sd (k * block_size shift + u) - exponent power sn sd (k * block_size shift).
Proof.
  intros power sn sd shift k u Hp Hn Hd Hs. unfold pair_loss.
  pose proof (block_size_Z shift) as Hb.
  assert (0 <= Z.of_nat k * 2 ^ shift)%Z as Hf by (rewrite <- Hb; lia).
  split; [|split].
  - apply Z.mul_nonneg_nonneg; [|apply Z.pow_nonneg; lia].
    pose proof (Z.pow_le_mono_l (Z.of_nat k * 2 ^ shift) (Z.of_nat k * 2 ^ shift + Z.of_nat u) power ltac:(lia)). lia.
  - apply Z.mul_pos_pos; auto. apply Z.pow_pos_nonneg; lia.
  - unfold exponent. rewrite <- Hb, plus_INR, mult_INR, !INR_IZR_INZ.
    rewrite !mult_IZR, minus_IZR, !IZR_pow, plus_IZR, mult_IZR by lia.
    assert (0 < IZR sn) by (apply (IZR_lt 0); auto). assert (0 < IZR sd) by (apply (IZR_lt 0); auto).
    assert (0 < IZR power) by (apply (IZR_lt 0); auto).
    unfold Rdiv. rewrite (Rpow_mult_distr (IZR sn)), pow_inv.
    assert (IZR sn ^ Z.to_nat power <> 0) by (apply pow_nonzero; lra).
    assert (IZR sd ^ Z.to_nat power <> 0) by (apply pow_nonzero; lra).
    field. repeat split; auto; lra.
Qed.

(* Discrete Laplace noise of a scale sn / sd, by one table: x has the chance exp(-|x| sd / sn) (1 - q)/(1 + q), from uniform words. *)
Theorem laplace_narrow_code : forall word_bits sn sd table, (1 < word_bits)%Z -> (0 < sn)%Z -> (0 < sd)%Z ->
  (forall b, (0 <= b)%Z -> exists terms guard, (0 <= guard)%Z /\ laplace_thresholds terms sd sn b guard true = Some (table b)) ->
  forall fuel x, let r := IZR sd / IZR sn in
    let p := exp (- (r * IZR (Z.abs x))) * ((1 - q r) / (1 + q r)) in
    p - 2 / (width (half word_bits) * INR (count word_bits) ^ fuel) <=
      chance word_bits (narrow word_bits table fuel) (is x) <= p.
Proof.
  intros word_bits sn sd table Hw Hn Hd Ht fuel x r p.
  assert (0 < r) as Hr by (apply Rmult_lt_0_compat; [apply (IZR_lt 0); auto | apply Rinv_0_lt_compat, (IZR_lt 0); auto]).
  unfold p. rewrite <- laplace_narrow by auto.
  apply (narrow_law word_bits Hw (folded_C r)); [apply folded_range; auto | apply folded_rises; auto |].
  intros b k Hb. destruct (Ht b Hb) as (terms & guard & Hg & H).
  apply (laplace_thresholds_right terms sd sn b guard true (table b) Hd Hn Hb Hg H k).
Qed.

(* The same by blocks: one trial gives x with a chance proportional to exp(-|x| sd / sn), from uniform words. *)
Theorem laplace_wide_code : forall word_bits sn sd table floor shift keep_bits,
  (1 < word_bits)%Z -> (0 < sn)%Z -> (0 < sd)%Z -> (0 <= shift)%Z -> (0 <= keep_bits)%Z -> (shift + keep_bits <= word_bits)%Z ->
  (forall b, (0 <= b)%Z -> exists terms guard, (0 <= guard)%Z /\
    laplace_thresholds terms (sd * 2 ^ shift) sn b guard false = Some (table b)) ->
  (forall n d b, (0 < n)%Z -> (0 < d)%Z -> (0 <= b)%Z -> exists fuel terms guard, (0 <= guard)%Z /\
    loss_floor fuel terms guard n d b = Some (floor n d b)) ->
  forall fuel x, let r := IZR sd / IZR sn in
    let p := exp (- (r * IZR (Z.abs x))) / (2 * INR (block_size shift) * (1 / (1 - exp (- (INR (block_size shift) * r))))) in
    p - slack word_bits keep_bits fuel <=
      chance word_bits (trial word_bits table floor (pair_loss 1 sn sd shift) shift keep_bits fuel) (gives x) <= p.
Proof.
  intros word_bits sn sd table floor shift keep_bits Hw Hn Hd Hs Hk Hroom Ht Hf fuel x r p.
  assert (0 < IZR sn) as HnR by (apply (IZR_lt 0); auto). assert (0 < IZR sd) as HdR by (apply (IZR_lt 0); auto).
  pose proof (block_size_pos shift Hs) as Hbs. apply lt_0_INR in Hbs.
  assert (0 < r) as Hr by (apply Rmult_lt_0_compat; [auto | apply Rinv_0_lt_compat; auto]).
  set (rate := INR (block_size shift) * r). assert (0 < rate) as HR by (apply Rmult_lt_0_compat; auto).
  assert (IZR (sd * 2 ^ shift) / IZR sn = rate) as ER.
  { unfold rate, r. rewrite mult_IZR, <- (block_size_Z shift), <- INR_IZR_INZ. field. lra. }
  assert (forall k, exponent 1 sn sd k = INR k * r) as Hexp.
  { intros k. unfold exponent, r. change (Z.to_nat 1) with 1%nat. simpl pow. field. split; lra. }
  pose proof (trial_law word_bits Hw (exponent 1 sn sd) shift keep_bits Hs Hk Hroom (sided_C rate) (sided_range rate HR)
    (sided_rises rate HR) table) as T.
  assert (forall b k, (0 <= b)%Z -> let t := nth k (table b) (2 ^ b - 1)%Z in
    IZR t <= sided_C rate k * width b < IZR t + 1) as Hfloors.
  { intros b k Hb. destruct (Ht b Hb) as (terms & guard & Hg & H). rewrite <- ER.
    apply (laplace_thresholds_right terms (sd * 2 ^ shift) sn b guard false (table b)); auto.
    apply Z.mul_pos_pos; auto. apply Z.pow_pos_nonneg; lia. }
  specialize (T Hfloors (1 / (1 - exp (- rate)))).
  assert (0 < 1 - exp (- rate)) as H1 by (pose proof (q_range rate HR); unfold q in *; lra).
  specialize (T ltac:(apply Rmult_lt_0_compat; [lra | apply Rinv_0_lt_compat; auto])).
  assert (forall k, sided_C rate k - before (sided_C rate) k = exp (- exponent 1 sn sd (k * block_size shift)) / (1 / (1 - exp (- rate)))) as Hblocks.
  { intros k. rewrite (laplace_blocks rate HR). unfold q. do 2 f_equal. rewrite Hexp, mult_INR. unfold rate. ring. }
  specialize (T Hblocks (pair_loss 1 sn sd shift) floor).
  assert (forall k u, (u < block_size shift)%nat ->
    let (n, d) := pair_loss 1 sn sd shift (Z.of_nat k) (Z.of_nat u) in (0 <= n)%Z /\ (0 < d)%Z /\
      IZR n / IZR d = exponent 1 sn sd (k * block_size shift + u) - exponent 1 sn sd (k * block_size shift)) as Hloss.
  { intros k u _. apply pair_loss_right; lia. }
  specialize (T Hloss).
  assert (forall n d b, (0 < n)%Z -> (0 < d)%Z -> (0 <= b)%Z ->
    IZR (floor n d b) <= (1 - exp (- (IZR n / IZR d))) * width b < IZR (floor n d b) + 1) as Hfl.
  { intros n d b H2 H3 H4. destruct (Hf n d b H2 H3 H4) as (f & terms & guard & Hg & H).
    rewrite Rmult_comm. apply (loss_floor_right f terms guard n d b); auto. }
  specialize (T Hfl fuel x). unfold target, one_trial in T. rewrite Hexp in T. unfold p. fold rate.
  replace (r * IZR (Z.abs x)) with (INR (Z.to_nat (Z.abs x)) * r); [exact T|].
  rewrite INR_IZR_INZ, Z2Nat.id by lia. ring.
Qed.
