(* The exponential enclosed by whole numbers: `exp_bounds`, `_exp_series` and `loss_floor` of noise/thresholds.py. *)
Require Import Reals Lra Lia Psatz ZArith Bool.
From Coquelicot Require Import Coquelicot.
Open Scope Z_scope.

(* ==== The code ==== *)
Definition bit_length (z : Z) : Z := if z <=? 0 then 0 else Z.log2 z + 1.

Fixpoint series (fuel : nat) (argument one order term total : Z) : option (Z * Z) :=
  match fuel with
  | O => None
  | S fuel =>
      let term := term * argument / (order * one) in
      if term =? 0 then Some (total, 2 * order + 3)
      else series fuel argument one (order + 1) term (if Z.odd order then total - term else total + term)
  end.

Fixpoint square (times : nat) (one value error : Z) : Z * Z :=
  match times with O => (value, error) | S times => square times one (value * value / one) (2 * error + 1) end.

(* exp(- n / d) in units of 2^-bits. *)
Definition exp_bounds (fuel : nat) (n d bits : Z) : option (Z * Z) :=
  if n =? 0 then Some (2 ^ bits, 2 ^ bits)
  else if bits * d <=? n then Some (0, 1)
  else
    let halvings := bit_length (n / d) + 8 in
    let work := bits + halvings + bit_length bits + 16 in
    let one := 2 ^ work in
    match series fuel (n * 2 ^ (work - halvings) / d) one 1 one one with
    | None => None
    | Some (value, error) =>
        let (value, error) := square (Z.to_nat halvings) one value error in
        let unit := 2 ^ (work - bits) in
        Some (Z.max ((value - error) / unit) 0, Z.min (- (- (value + error) / unit)) (2 ^ bits))
    end.

(* The floor of 2^bits (1 - exp(- n / d)). *)
Fixpoint loss_floor (fuel terms : nat) (guard n d bits : Z) : option Z :=
  match fuel with
  | O => None
  | S fuel' =>
      match exp_bounds terms n d (bits + guard) with
      | None => None
      | Some (low, high) =>
          let one := 2 ^ (bits + guard) in
          let floor := (one - high) / 2 ^ guard in
          if floor =? Z.min ((one - low) / 2 ^ guard) (2 ^ bits - 1) then Some floor
          else loss_floor fuel' terms (guard * 2) n d bits
      end
  end.

(* ==== That it is right ==== *)
Open Scope R_scope.

(* ---- Taylor's remainder of exp(-y) has a sign, and is below the first term left out. ---- *)
Definition term (n : nat) (y : R) : R := y ^ n / INR (fact n).
Fixpoint rest (n : nat) (y : R) : R := match n with O => exp (- y) | S n => term n y - rest n y end.
Fixpoint partial (n : nat) (y : R) : R :=
  match n with O => 0 | S n => partial n y + (if Nat.even n then term n y else - term n y) end.

Lemma rest_partial : forall n y, exp (- y) = partial n y + (if Nat.even n then rest n y else - rest n y).
Proof.
  induction n as [|n IH]; intros y; [simpl; lra|].
  rewrite (IH y). cbn [partial rest]. rewrite Nat.even_succ, <- Nat.negb_even.
  destruct (Nat.even n); simpl; lra.
Qed.

Lemma rest_zero : forall n, rest (S n) 0 = 0.
Proof.
  induction n as [|n IH]; [simpl; unfold term; simpl; rewrite Ropp_0, exp_0; lra|].
  change (rest (S (S n)) 0) with (term (S n) 0 - rest (S n) 0). rewrite IH. unfold term.
  rewrite pow_i by lia. lra.
Qed.

Lemma term_derive : forall n y, is_derive (term (S n)) y (term n y).
Proof.
  intros n y. apply is_derive_Reals.
  replace (term n y) with (/ INR (fact (S n)) * (INR (S n) * y ^ pred (S n))).
  - apply derivable_pt_lim_ext with (fun y => / INR (fact (S n)) * y ^ S n).
    + intros z. unfold term, Rdiv. ring.
    + apply derivable_pt_lim_scal, derivable_pt_lim_pow.
  - unfold term. rewrite fact_simpl, mult_INR. simpl pred. field. split; first [apply INR_fact_neq_0 | apply not_0_INR; lia].
Qed.

Lemma rest_derive : forall n y, is_derive (rest (S n)) y (rest n y).
Proof.
  induction n as [|n IH]; intros y.
  - simpl. unfold term. simpl. auto_derive; auto. ring.
  - apply (is_derive_minus (term (S n)) (rest (S n)) y (term n y) (rest n y)); [apply term_derive | apply IH].
Qed.

Lemma rest_nonneg : forall n y, 0 <= y -> 0 <= rest n y.
Proof.
  induction n as [|n IH]; intros y Hy; [left; apply exp_pos|].
  destruct Hy as [Hy|Hy]; [|rewrite <- Hy, rest_zero; lra].
  destruct (MVT_cor2 (rest (S n)) (rest n) 0 y Hy) as (c & Heq & Hc).
  - intros c _. apply is_derive_Reals, rest_derive.
  - rewrite rest_zero in Heq. assert (0 <= rest n c) by (apply IH; lra). nra.
Qed.

Lemma taylor : forall n y, 0 <= y -> Rabs (exp (- y) - partial n y) <= term n y.
Proof.
  intros n y Hy. rewrite (rest_partial n y). pose proof (rest_nonneg n y Hy). pose proof (rest_nonneg (S n) y Hy).
  simpl in *. destruct (Nat.even n); [rewrite Rabs_pos_eq | rewrite Rabs_left1]; lra.
Qed.

(* ---- Whole numbers ---- *)
Lemma div_floor : forall a b : Z, (0 < b)%Z -> IZR (a / b) <= IZR a / IZR b < IZR (a / b) + 1.
Proof.
  intros a b Hb. assert (0 < IZR b) by (apply (IZR_lt 0); auto).
  pose proof (Z.div_mod a b ltac:(lia)). pose proof (Z.mod_pos_bound a b Hb).
  assert (IZR a = IZR b * IZR (a / b) + IZR (a mod b)) as E by (rewrite <- mult_IZR, <- plus_IZR; f_equal; auto).
  assert (0 <= IZR (a mod b) < IZR b) by (split; [apply (IZR_le 0) | apply IZR_lt]; lia).
  split; [apply Rmult_le_reg_r with (IZR b) | apply Rmult_lt_reg_r with (IZR b)]; auto;
    unfold Rdiv; rewrite Rmult_assoc, Rinv_l by lra; lra.
Qed.

Lemma term_step : forall n y, term (S n) y = term n y * (y / INR (S n)).
Proof.
  intros n y. unfold term. rewrite fact_simpl, mult_INR. simpl pow. field.
  split; first [apply INR_fact_neq_0 | apply not_0_INR; lia].
Qed.

Lemma term_nonneg : forall n y, 0 <= y -> 0 <= term n y.
Proof.
  intros. unfold term. apply Rmult_le_pos; [apply pow_le; auto | left; apply Rinv_0_lt_compat, INR_fact_lt_0].
Qed.

Lemma series_right : forall fuel argument one (j : nat) t total value error,
  (0 < one)%Z -> (0 <= argument)%Z -> (2 * argument <= one)%Z ->
  let y := IZR argument / IZR one in
  (1 <= j)%nat -> (0 <= t)%Z ->
  IZR t <= IZR one * term (j - 1) y <= IZR t + 2 ->
  Rabs (IZR total - IZR one * partial j y) <= 2 * (INR j - 1) ->
  (if Z.odd (Z.of_nat j) then t <= total <= one else 0 <= total /\ total + t <= one)%Z ->
  series fuel argument one (Z.of_nat j) t total = Some (value, error) ->
  Rabs (IZR value - IZR one * exp (- y)) <= IZR error - 3 /\ (0 <= value <= one)%Z.
Proof.
  induction fuel as [|fuel IH]; intros argument one j t total value error Hone Ha Hsmall y Hj Ht Hterm Hsum Hpair H;
    [discriminate|].
  assert (0 < IZR one) as HW by (apply (IZR_lt 0); auto).
  assert (0 <= IZR argument) as HA by (apply (IZR_le 0); auto).
  assert (0 <= y <= 1 / 2) as Hy.
  { unfold y. split; [apply Rmult_le_pos; [lra | left; apply Rinv_0_lt_compat; auto]|].
    apply Rmult_le_reg_r with (IZR one); auto. unfold Rdiv at 1. rewrite Rmult_assoc, Rinv_l by lra.
    apply IZR_le in Hsmall. rewrite mult_IZR in Hsmall. lra. }
  cbn [series] in H. set (t' := (t * argument / (Z.of_nat j * one))%Z) in *.
  assert (0 < Z.of_nat j * one)%Z as Hden by nia.
  assert (0 <= t')%Z as Ht'0 by (apply Z.div_pos; nia).
  destruct j as [|j]; [lia|]. replace (S j - 1)%nat with j in Hterm by lia.
  assert (1 <= INR (S j)) as HSj by (rewrite S_INR; pose proof (pos_INR j); lra).
  assert (IZR one * term (S j) y = IZR one * term j y * (y / INR (S j))) as Hstep by (rewrite term_step; ring).
  assert (0 <= y / INR (S j) <= 1 / 2) as Hr.
  { split; [apply Rmult_le_pos; [lra | left; apply Rinv_0_lt_compat; lra]|].
    apply Rmult_le_reg_r with (INR (S j)); [lra|]. unfold Rdiv at 1. rewrite Rmult_assoc, Rinv_l by lra. nra. }
  pose proof (div_floor (t * argument) (Z.of_nat (S j) * one) Hden) as Hfl. fold t' in Hfl.
  assert (IZR (t * argument) / IZR (Z.of_nat (S j) * one) = IZR t * (y / INR (S j))) as E.
  { unfold y. rewrite !mult_IZR, <- INR_IZR_INZ. field. split; lra. }
  rewrite E in Hfl.
  assert (0 <= IZR t) as HtR by (apply (IZR_le 0); auto).
  set (r := y / INR (S j)) in *. set (T := IZR one * term j y) in *.
  assert (IZR t' <= IZR one * term (S j) y <= IZR t' + 2) as Hterm'.
  { rewrite Hstep. split; nra. }
  assert (t' <= t)%Z as Hle by (apply le_IZR; nra).
  destruct (Z.eqb_spec t' 0) as [E0|E0].
  - assert (value = total) as -> by congruence. assert (error = 2 * Z.of_nat (S j) + 3)%Z as -> by congruence.
    rewrite E0 in Hterm'.
    pose proof (taylor (S j) y ltac:(lra)) as HT. split.
    + replace (IZR total - IZR one * exp (- y)) with
        (IZR total - IZR one * partial (S j) y - IZR one * (exp (- y) - partial (S j) y)) by ring.
      assert (Rabs (IZR one * (exp (- y) - partial (S j) y)) <= IZR one * term (S j) y) as H2.
      { rewrite Rabs_mult, (Rabs_pos_eq (IZR one)) by lra. apply Rmult_le_compat_l; lra. }
      eapply Rle_trans; [apply Rabs_triang|]. rewrite Rabs_Ropp.
      rewrite plus_IZR, mult_IZR, <- INR_IZR_INZ. lra.
    + destruct (Z.odd (Z.of_nat (S j))); lia.
  - replace (Z.of_nat (S j) + 1)%Z with (Z.of_nat (S (S j))) in H by lia.
    apply (IH argument one (S (S j)) t'
      (if Z.odd (Z.of_nat (S j)) then total - t' else total + t')%Z value error); auto; try lia.
    + fold y. change (partial (S (S j)) y) with
        (partial (S j) y + (if Nat.even (S j) then term (S j) y else - term (S j) y)).
      rewrite <- Nat.negb_odd.
      assert (Z.odd (Z.of_nat (S j)) = Nat.odd (S j)) as Eo.
      { rewrite <- !Z.negb_even, <- Nat.negb_even. f_equal.
        destruct (Nat.even (S j)) eqn:Ev.
        - apply Nat.even_spec in Ev. destruct Ev as [k Ek]. apply Z.even_spec. exists (Z.of_nat k). lia.
        - destruct (Z.even (Z.of_nat (S j))) eqn:Ev'; auto. apply Z.even_spec in Ev'. destruct Ev' as [k Ek].
          assert (Nat.even (S j) = true) by (apply Nat.even_spec; exists (Z.to_nat k); lia). congruence. }
      rewrite Eo. rewrite (S_INR (S j)).
      match goal with |- Rabs ?x <= _ => replace x with
        ((IZR total - IZR one * partial (S j) y) +
         (if Nat.odd (S j) then IZR one * term (S j) y - IZR t' else IZR t' - IZR one * term (S j) y)) end.
      * eapply Rle_trans; [apply Rabs_triang|].
        assert (Rabs (if Nat.odd (S j) then IZR one * term (S j) y - IZR t' else IZR t' - IZR one * term (S j) y) <= 2).
        { destruct (Nat.odd (S j)); [rewrite Rabs_pos_eq | rewrite Rabs_left1]; lra. }
        lra.
      * destruct (Nat.odd (S j)); cbn [negb]; rewrite ?minus_IZR, ?plus_IZR; ring.
    + replace (Z.odd (Z.of_nat (S (S j)))) with (negb (Z.odd (Z.of_nat (S j)))).
      * destruct (Z.odd (Z.of_nat (S j))); simpl; lia.
      * replace (Z.of_nat (S (S j))) with (Z.succ (Z.of_nat (S j))) by lia.
        rewrite Z.odd_succ, <- Z.negb_odd. reflexivity.
Qed.

Lemma square_right : forall times one value error a value' error',
  (0 < one)%Z -> (0 <= value <= one)%Z -> 0 <= a <= 1 ->
  Rabs (IZR value - IZR one * a) <= IZR error ->
  square times one value error = (value', error') ->
  Rabs (IZR value' - IZR one * a ^ (2 ^ times)) <= IZR error'.
Proof.
  induction times as [|times IH]; intros one value error a value' error' Hone Hv Ha H E; cbn [square] in E.
  - injection E as <- <-. simpl. rewrite Rmult_1_r. exact H.
  - assert (0 < IZR one) as HW by (apply (IZR_lt 0); auto).
    assert (0 <= IZR value <= IZR one) as HvR by (split; [apply (IZR_le 0) | apply IZR_le]; lia).
    replace (a ^ (2 ^ S times)) with ((a * a) ^ (2 ^ times)).
    2: { simpl. rewrite Nat.add_0_r, pow_add, Rpow_mult_distr. reflexivity. }
    apply (IH one (value * value / one)%Z (2 * error + 1)%Z); auto.
    + split; [apply Z.div_pos; nia|]. apply Z.div_le_upper_bound; nia.
    + split; nra.
    + pose proof (div_floor (value * value) one Hone) as Hf. rewrite mult_IZR in Hf.
      set (f := IZR (value * value / one)) in *. set (v := IZR value) in *. set (W := IZR one) in *.
      rewrite plus_IZR, mult_IZR.
      assert (Rabs (v * v / W - W * (a * a)) <= 2 * IZR error) as H2.
      { replace (v * v / W - W * (a * a)) with ((v - W * a) * (v / W + a)) by (field; lra).
        assert (0 <= v / W <= 1) as Hq.
        { split; [apply Rmult_le_pos; [lra | left; apply Rinv_0_lt_compat; auto]|].
          apply Rmult_le_reg_r with W; auto. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra. }
        rewrite Rabs_mult, (Rabs_pos_eq (v / W + a)) by lra.
        rewrite (Rmult_comm 2). apply Rmult_le_compat; try lra. apply Rabs_pos. }
      apply Rabs_le_between in H2. apply Rabs_le_between. split; lra.
Qed.

Lemma exp_halved : forall n x, exp (- (x / 2 ^ n)) ^ (2 ^ n) = exp (- x).
Proof.
  induction n as [|n IH]; intros x; [simpl; rewrite Rmult_1_r; f_equal; field|].
  replace (2 ^ S n)%nat with (2 * 2 ^ n)%nat by reflexivity. rewrite pow_mult.
  replace (exp (- (x / 2 ^ S n)) ^ 2) with (exp (- (x / 2 ^ n))); [apply IH|].
  simpl pow. rewrite Rmult_1_r, <- exp_plus. f_equal. field. apply pow_nonzero. lra.
Qed.

Lemma exp_shift : forall y z, 0 <= y -> y <= z -> exp (- y) - exp (- z) <= z - y.
Proof.
  intros y z Hy Hz. replace (exp (- z)) with (exp (- y) * exp (- (z - y))) by (rewrite <- exp_plus; f_equal; ring).
  pose proof (exp_ineq1_le (- (z - y))). assert (0 < exp (- y) <= 1).
  { split; [apply exp_pos|]. rewrite <- exp_0. destruct Hy as [Hy|Hy]; [left; apply exp_increasing; lra | right; f_equal; lra]. }
  nra.
Qed.

Lemma bit_length_above : forall z, (0 <= z)%Z -> (z < 2 ^ bit_length z)%Z /\ (0 <= bit_length z)%Z.
Proof.
  intros z Hz. unfold bit_length. destruct (Z.leb_spec z 0); [simpl; lia|].
  pose proof (Z.log2_spec z ltac:(lia)). pose proof (Z.log2_nonneg z).
  replace (Z.log2 z + 1)%Z with (Z.succ (Z.log2 z)) by lia. lia.
Qed.

Lemma pow2_R : forall k, (0 <= k)%Z -> IZR (2 ^ k) = 2 ^ Z.to_nat k.
Proof. intros k Hk. rewrite pow_IZR. f_equal. rewrite Z2Nat.id; auto. Qed.

Lemma pow2_pos : forall k, (0 <= k)%Z -> 0 < IZR (2 ^ k).
Proof. intros. apply (IZR_lt 0). apply Z.pow_pos_nonneg; lia. Qed.

(* `exp_bounds` encloses 2^bits exp(-n/d). *)
Theorem exp_enclosed : forall fuel n d bits low high, (0 <= n)%Z -> (0 < d)%Z -> (0 <= bits)%Z ->
  exp_bounds fuel n d bits = Some (low, high) ->
  IZR low <= IZR (2 ^ bits) * exp (- (IZR n / IZR d)) <= IZR high.
Proof.
  intros fuel n d bits low high Hn Hd Hb H. unfold exp_bounds in H.
  assert (0 < IZR d) as HdR by (apply (IZR_lt 0); auto). set (x := IZR n / IZR d).
  assert (0 <= IZR n) as HnR by (apply (IZR_le 0); auto).
  assert (0 <= x) as Hx by (apply Rmult_le_pos; [auto | left; apply Rinv_0_lt_compat; auto]).
  pose proof (pow2_pos bits Hb) as Hpb.
  assert (exp (- x) <= 1) as Hex.
  { rewrite <- exp_0. destruct Hx as [Hx|Hx]; [left; apply exp_increasing; lra | right; f_equal; lra]. }
  destruct (Z.eqb_spec n 0) as [E0|E0].
  { injection H as <- <-. assert (x = 0) as -> by (unfold x; rewrite E0; unfold Rdiv; ring). rewrite Ropp_0, exp_0. lra. }
  destruct (Z.leb_spec (bits * d) n) as [Hl|Hl].
  { injection H as <- <-. apply IZR_le in Hl. rewrite mult_IZR in Hl.
    assert (IZR bits <= x) as Hbx.
    { unfold x. apply Rmult_le_reg_r with (IZR d); auto. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra. }
    split; [apply Rmult_le_pos; [lra | left; apply exp_pos]|].
    apply Rle_trans with (IZR (2 ^ bits) * exp (- IZR bits)).
    { apply Rmult_le_compat_l; [lra|]. destruct Hbx as [Hbx|Hbx]; [left; apply exp_increasing; lra | right; rewrite Hbx; auto]. }
    rewrite pow2_R by auto. replace (IZR bits) with (INR (Z.to_nat bits)) by (rewrite INR_IZR_INZ, Z2Nat.id; auto).
    assert (forall m, 2 ^ m * exp (- INR m) <= 1) as HM; auto.
    induction m as [|m IH]; [simpl; rewrite Ropp_0, exp_0; lra|].
    rewrite S_INR. replace (- (INR m + 1)) with (- INR m + - (1)) by ring. rewrite exp_plus. simpl pow.
    assert (2 * exp (- (1)) <= 1).
    { rewrite exp_Ropp. pose proof (exp_ineq1_le 1). apply Rmult_le_reg_r with (exp 1); [apply exp_pos|].
      rewrite Rmult_assoc, Rinv_l by (pose proof (exp_pos 1); lra). lra. }
    assert (0 <= 2 ^ m * exp (- INR m)) by (apply Rmult_le_pos; [apply pow_le; lra | left; apply exp_pos]).
    assert (0 <= 2 * exp (- (1))) by (pose proof (exp_pos (- (1))); lra).
    replace (2 * 2 ^ m * (exp (- INR m) * exp (- (1)))) with (2 ^ m * exp (- INR m) * (2 * exp (- (1)))) by ring.
    nra. }
  set (bl := bit_length (n / d)) in *. set (halvings := (bl + 8)%Z) in *.
  set (work := (bits + halvings + bit_length bits + 16)%Z) in *.
  pose proof (Z.div_pos n d Hn Hd) as Hq.
  destruct (bit_length_above (n / d) Hq) as [Hbl1 Hbl2]. fold bl in Hbl1, Hbl2.
  destruct (bit_length_above bits Hb) as [_ Hbb].
  assert (0 <= work)%Z as Hwork by lia. assert (0 <= halvings)%Z as Hh by lia.
  set (argument := (n * 2 ^ (work - halvings) / d)%Z) in *.
  destruct (series fuel argument (2 ^ work) 1 (2 ^ work) (2 ^ work)) as [[v e]|] eqn:ES; [|discriminate].
  destruct (square (Z.to_nat halvings) (2 ^ work) v e) as [v' e'] eqn:EQ.
  injection H as Hlow Hhigh.
  set (W := IZR (2 ^ work)) in *. assert (0 < W) as HW by (apply pow2_pos; auto).
  set (y := x / 2 ^ Z.to_nat halvings).
  assert (0 < 2 ^ Z.to_nat halvings) as Hp2 by (apply pow_lt; lra).
  assert (W * y = IZR (n * 2 ^ (work - halvings)) / IZR d) as HWy.
  { unfold W, y, x. rewrite mult_IZR. replace work with (work - halvings + halvings)%Z at 1 by lia.
    rewrite Z.pow_add_r, mult_IZR, (pow2_R halvings) by lia. field. split; lra. }
  pose proof (div_floor (n * 2 ^ (work - halvings)) d Hd) as Hfl. fold argument in Hfl. rewrite <- HWy in Hfl.
  assert (0 <= n * 2 ^ (work - halvings))%Z as Hnn by (apply Z.mul_nonneg_nonneg; auto; apply Z.pow_nonneg; lia).
  assert (0 <= argument)%Z as Harg by (apply Z.div_pos; auto).
  assert (0 <= y <= 1 / 256) as Hy.
  { split; [apply Rmult_le_pos; [auto | left; apply Rinv_0_lt_compat; auto]|].
    unfold y. apply Rmult_le_reg_r with (2 ^ Z.to_nat halvings); auto.
    unfold Rdiv at 1. rewrite Rmult_assoc, Rinv_l, Rmult_1_r by lra.
    pose proof (div_floor n d Hd) as Hf. fold x in Hf.
    rewrite <- pow2_R by auto. unfold halvings. rewrite Z.pow_add_r, mult_IZR by lia. simpl (IZR (2 ^ 8)).
    assert (IZR (n / d) + 1 <= IZR (2 ^ bl)) by (rewrite <- plus_IZR; apply IZR_le; lia). lra. }
  assert (2 * argument <= 2 ^ work)%Z as Hsmall.
  { apply le_IZR. rewrite mult_IZR. fold W. nra. }
  set (y0 := IZR argument / IZR (2 ^ work)).
  assert (0 < 2 ^ work)%Z as HoneZ by (apply Z.pow_pos_nonneg; lia).
  destruct (series_right fuel argument (2 ^ work) 1 (2 ^ work) (2 ^ work) v e) as [HS HV]; auto; try lia.
  { fold y0 W. unfold term. simpl. lra. }
  { fold y0 W. unfold term. simpl. unfold term. simpl.
    replace (W - W * (0 + 1 / 1)) with 0 by field. rewrite Rabs_R0. lra. }
  { simpl. lia. }
  fold y0 in HS. fold W in HS.
  assert (Rabs (IZR v - W * exp (- y)) <= IZR e) as HS2.
  { assert (W * y0 = IZR argument) as Ey0 by (unfold y0, W; field; fold W; lra).
    assert (0 <= y0) by (apply Rmult_le_pos; [apply (IZR_le 0); auto | left; apply Rinv_0_lt_compat; fold W; lra]).
    assert (y0 <= y) by (apply Rmult_le_reg_l with W; lra).
    pose proof (exp_shift y0 y ltac:(lra) ltac:(lra)).
    assert (W * (exp (- y0) - exp (- y)) <= 1).
    { apply Rle_trans with (W * (y - y0)); [apply Rmult_le_compat_l; lra | lra]. }
    assert (exp (- y) <= exp (- y0)).
    { destruct (Rle_lt_or_eq_dec y0 y ltac:(lra)) as [L|L]; [left; apply exp_increasing; lra | right; rewrite L; auto]. }
    assert (0 <= W * (exp (- y0) - exp (- y))) by (apply Rmult_le_pos; lra).
    apply Rabs_le_between in HS. apply Rabs_le_between. split; lra. }
  assert (0 <= exp (- y) <= 1) as Hey.
  { split; [left; apply exp_pos|]. rewrite <- exp_0.
    destruct (Rle_lt_or_eq_dec 0 y (proj1 Hy)) as [L|L]; [left; apply exp_increasing; lra | right; f_equal; lra]. }
  pose proof (square_right (Z.to_nat halvings) (2 ^ work) v e (exp (- y)) v' e' HoneZ HV Hey HS2 EQ) as HQ.
  unfold y in HQ. rewrite exp_halved in HQ. fold W in HQ.
  set (unit := (2 ^ (work - bits))%Z) in *.
  assert (0 < unit)%Z as Hunit by (apply Z.pow_pos_nonneg; lia).
  assert (W = IZR (2 ^ bits) * IZR unit) as HWu.
  { unfold W, unit. rewrite <- mult_IZR, <- Z.pow_add_r by lia. do 2 f_equal. lia. }
  assert (0 < IZR unit) as HuR by (apply (IZR_lt 0); auto).
  pose proof (div_floor (v' - e') unit Hunit) as D1. pose proof (div_floor (- (v' + e')) unit Hunit) as D2.
  rewrite minus_IZR in D1. rewrite opp_IZR, plus_IZR in D2.
  apply Rabs_le_between in HQ. rewrite HWu in HQ. set (E := IZR (2 ^ bits) * exp (- x)).
  replace (IZR (2 ^ bits) * IZR unit * exp (- x)) with (E * IZR unit) in HQ by (unfold E; ring).
  assert (0 <= E) by (apply Rmult_le_pos; [lra | left; apply exp_pos]).
  assert (E <= IZR (2 ^ bits)) by (unfold E; nra).
  split.
  - rewrite <- Hlow. apply Z.max_case_strong; intros _; [|auto].
    apply Rle_trans with ((IZR v' - IZR e') / IZR unit); [lra|].
    apply Rmult_le_reg_r with (IZR unit); auto. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra.
  - rewrite <- Hhigh. apply Z.min_case_strong; intros _; [|auto].
    rewrite opp_IZR. apply Rle_trans with ((IZR v' + IZR e') / IZR unit).
    + apply Rmult_le_reg_r with (IZR unit); auto. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra.
    + replace (- (IZR v' + IZR e') / IZR unit) with (- ((IZR v' + IZR e') / IZR unit)) in D2 by (field; lra). lra.
Qed.

(* What `loss_floor` returns is the floor of 2^bits (1 - exp(-n/d)). *)
Theorem loss_floor_right : forall fuel terms guard n d bits f, (0 < n)%Z -> (0 < d)%Z -> (0 <= bits)%Z -> (0 <= guard)%Z ->
  loss_floor fuel terms guard n d bits = Some f ->
  IZR f <= IZR (2 ^ bits) * (1 - exp (- (IZR n / IZR d))) < IZR f + 1.
Proof.
  induction fuel as [|fuel IH]; intros terms guard n d bits f Hn Hd Hb Hg H; [discriminate|]. cbn [loss_floor] in H.
  destruct (exp_bounds terms n d (bits + guard)) as [[low high]|] eqn:E; [|discriminate].
  pose proof (exp_enclosed _ n d (bits + guard) low high ltac:(lia) Hd ltac:(lia) E) as HE.
  set (x := IZR n / IZR d) in *. set (one := (2 ^ (bits + guard))%Z) in *.
  match type of H with (if ?c then _ else _) = _ => destruct c eqn:Ef end; [|apply (IH terms (guard * 2)%Z); auto; lia].
  injection H as <-. apply Z.eqb_eq in Ef.
  pose proof (pow2_pos guard Hg) as Hpg. pose proof (pow2_pos bits Hb) as Hpb.
  assert (IZR one = IZR (2 ^ bits) * IZR (2 ^ guard)) as Hone by (unfold one; rewrite <- mult_IZR, <- Z.pow_add_r; auto; lia).
  assert (0 < 2 ^ guard)%Z as HgZ by (apply Z.pow_pos_nonneg; lia).
  pose proof (div_floor (one - high) (2 ^ guard) HgZ) as D1. pose proof (div_floor (one - low) (2 ^ guard) HgZ) as D2.
  rewrite minus_IZR in D1, D2. rewrite Hone in *. set (L := IZR (2 ^ bits) * (1 - exp (- x))).
  set (g := IZR (2 ^ guard)) in *. set (w := IZR (2 ^ bits)) in *.
  assert (w * g * exp (- x) = (w - L) * g) as EL by (unfold L; ring). rewrite EL in HE.
  assert ((w * g - IZR high) / g <= L) as B1.
  { apply Rmult_le_reg_r with g; auto. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra. }
  assert (L <= (w * g - IZR low) / g) as B2.
  { apply Rmult_le_reg_r with g; auto. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra. }
  split; [lra|].
  set (F := ((one - high) / 2 ^ guard)%Z) in *.
  destruct (Z.min_spec ((one - low) / 2 ^ guard) (2 ^ bits - 1)) as [[_ M]|[_ M]]; rewrite M in Ef.
  - rewrite Ef. lra.
  - rewrite Ef, minus_IZR. fold w. assert (0 < exp (- x)) by apply exp_pos. unfold L. nra.
Qed.
