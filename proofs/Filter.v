(* The rules of a ledger, each with a potential that a mechanism it pays for does not raise in the mean.

   Fix two neighbouring tables. A mechanism with n outcomes has the chance p i of outcome i on the one and q i on the
   other. For weights a and b, a potential G bounds a P[S] - b P'[S] for everything that may still happen; at the end
   it is at least a - b and at least 0. What a rule has left is an amount u, as a real number. *)
Require Import Reals Lra Lia Psatz.
From Sfumato Require Import Sums.
Open Scope R_scope.

Definition chances (n : nat) (p : nat -> R) := sum n p = 1 /\ forall i, (i < n)%nat -> 0 <= p i.

(* ---- Pure epsilon: u is what is left of it. ---- *)
Definition pure_private (e : R) (n : nat) (p q : nat -> R) :=
  forall i, (i < n)%nat -> p i <= exp e * q i.

Definition pure_potential (u a b : R) := Rmax 0 (a - b * exp (- u)).

Lemma pure_nonneg : forall u a b, 0 <= pure_potential u a b.
Proof. intros. apply Rmax_l. Qed.

Lemma exp_neg_le_1 : forall u, 0 <= u -> exp (- u) <= 1.
Proof.
  intros u [H|H].
  - left. rewrite <- exp_0. apply exp_increasing. lra.
  - rewrite <- H, Ropp_0, exp_0. lra.
Qed.

Lemma pure_stop : forall u a b, 0 <= u -> 0 <= b -> a - b <= pure_potential u a b.
Proof.
  intros u a b Hu Hb. unfold pure_potential. pose proof (exp_neg_le_1 u Hu).
  apply Rle_trans with (a - b * exp (- u)); [nra | apply Rmax_r].
Qed.

Lemma pure_step : forall e u n p q a b, chances n p -> chances n q -> pure_private e n p q -> 0 <= a -> 0 <= b ->
  sum n (fun i => pure_potential (u - e) (a * p i) (b * q i)) <= pure_potential u a b.
Proof.
  intros e u n p q a b [Hp Hp0] [_ Hq0] Hr Ha Hb.
  apply Rle_trans with (sum n (fun i => pure_potential u a b * p i)).
  - apply sum_le. intros i Hi. specialize (Hp0 i Hi). specialize (Hq0 i Hi). specialize (Hr i Hi).
    assert (p i * exp (- u) <= q i * exp (- (u - e))) as HH.
    { replace (exp (- (u - e))) with (exp e * exp (- u)) by (rewrite <- exp_plus; f_equal; ring).
      pose proof (exp_pos (- u)). nra. }
    unfold pure_potential. apply Rmax_case_strong; intros _.
    + apply Rmult_le_pos; auto. apply Rmax_l.
    + apply Rle_trans with ((a - b * exp (- u)) * p i); [nra|].
      apply Rmult_le_compat_r; auto. apply Rmax_r.
  - rewrite sum_scale, Hp. lra.
Qed.

Lemma pure_start : forall e, pure_potential e 1 (exp e) = 0.
Proof.
  intros. unfold pure_potential. rewrite <- exp_plus, Rplus_opp_r, exp_0. apply Rmax_left. lra.
Qed.

Lemma pure_scales : forall u a b t, 0 <= t -> pure_potential u (a * t) (b * t) = pure_potential u a b * t.
Proof.
  intros u a b t Ht. unfold pure_potential. replace (a * t - b * t * exp (- u)) with ((a - b * exp (- u)) * t) by ring.
  unfold Rmax. destruct (Rle_dec 0 ((a - b * exp (- u)) * t)); destruct (Rle_dec 0 (a - b * exp (- u))); try lra; try nra.
Qed.

(* ---- One order of Renyi divergence, x + 1: u is what is left of the divergence. ---- *)
Section Renyi.
Variable x : R.
Hypothesis x_pos : 0 < x.

(* a^(1 + x) b^(- x), and nothing where a is nothing. *)
Definition moment (a b : R) : R :=
  if Rle_dec a 0 then 0 else exp ((1 + x) * ln a - x * ln b).

Definition renyi_private (d : R) (n : nat) (p q : nat -> R) :=
  (forall i, (i < n)%nat -> 0 < p i -> 0 < q i) /\ sum n (fun i => moment (p i) (q i)) <= exp (x * d).

Definition constant := exp (x * ln (x / (1 + x))) / (1 + x).   (* (1 - 1/alpha)^(alpha - 1) / alpha *)
(* Where b is nothing the order says nothing, unless a is nothing, too. *)
Definition renyi_potential (u a b : R) := constant * exp (x * u) * moment a b.

Lemma constant_pos : 0 < constant.
Proof. apply Rmult_lt_0_compat; [apply exp_pos | apply Rinv_0_lt_compat; lra]. Qed.

Lemma moment_nonneg : forall a b, 0 <= moment a b.
Proof. intros. unfold moment. destruct (Rle_dec a 0); [lra | left; apply exp_pos]. Qed.

Lemma renyi_nonneg : forall u a b, 0 <= renyi_potential u a b.
Proof.
  intros. unfold renyi_potential. pose proof constant_pos. pose proof (exp_pos (x * u)).
  apply Rmult_le_pos; [nra | apply moment_nonneg].
Qed.

Lemma ln_lower : forall y, 0 < y -> 1 - / y <= ln y.
Proof. intros y Hy. pose proof (exp_ineq1_le (- ln y)) as H. rewrite exp_Ropp, exp_ln in H; lra. Qed.

Lemma bernoulli : forall y, 0 < y -> 1 + (1 + x) * (y - 1) <= exp ((1 + x) * ln y).
Proof.
  intros y Hy. replace ((1 + x) * ln y) with (ln y + x * ln y) by ring. rewrite exp_plus, exp_ln by auto.
  pose proof (exp_ineq1_le (x * ln y)) as H1. pose proof (ln_lower y Hy) as H2.
  assert (x * (1 - / y) <= x * ln y) by (apply Rmult_le_compat_l; lra).
  assert (y * (1 + x * (1 - / y)) <= y * exp (x * ln y)) as H3 by (apply Rmult_le_compat_l; lra).
  replace (y * (1 + x * (1 - / y))) with (1 + (1 + x) * (y - 1)) in H3 by (field; lra). exact H3.
Qed.

Lemma tangent : forall a b, 0 < a -> 0 < b -> a - b <= constant * exp ((1 + x) * ln a - x * ln b).
Proof.
  intros a b Ha Hb. set (y := a / b * (x / (1 + x))).
  assert (0 < / b) by (apply Rinv_0_lt_compat; auto).
  assert (0 < / (1 + x)) by (apply Rinv_0_lt_compat; lra).
  assert (0 < y) as Hy by (unfold y, Rdiv; repeat apply Rmult_lt_0_compat; auto).
  replace (constant * exp ((1 + x) * ln a - x * ln b)) with (b / x * exp ((1 + x) * ln y)).
  - replace (a - b) with (b / x * (1 + (1 + x) * (y - 1))) by (unfold y; field; repeat split; lra).
    apply Rmult_le_compat_l; [|apply bernoulli; auto].
    apply Rmult_le_pos; [lra | left; apply Rinv_0_lt_compat; lra].
  - unfold constant, y, Rdiv.
    rewrite !ln_mult by (auto; try apply Rmult_lt_0_compat; auto; try lra). rewrite !ln_Rinv by lra.
    replace ((1 + x) * (ln a + - ln b + (ln x + - ln (1 + x))))
      with (x * (ln x + - ln (1 + x)) + ((1 + x) * ln a - x * ln b) + (- ln b) + ln x + - ln (1 + x)) by ring.
    rewrite !exp_plus, (exp_Ropp (ln b)), (exp_Ropp (ln (1 + x))), !exp_ln by lra.
    field; repeat split; lra.
Qed.

Lemma renyi_stop : forall u a b, 0 <= u -> 0 <= b -> (0 < a -> 0 < b) -> a - b <= renyi_potential u a b.
Proof.
  intros u a b Hu Hb Hab. destruct (Rle_dec a 0) as [Ha|Ha].
  - apply Rle_trans with 0; [lra | apply renyi_nonneg].
  - apply Rle_trans with (constant * moment a b).
    + unfold moment. destruct (Rle_dec a 0); [lra|]. apply tangent; [lra | apply Hab; lra].
    + unfold renyi_potential. pose proof constant_pos. pose proof (moment_nonneg a b).
      assert (1 <= exp (x * u)).
      { pose proof (exp_ineq1_le (x * u)). assert (0 <= x * u) by (apply Rmult_le_pos; lra). lra. }
      assert (0 <= constant * moment a b) by (apply Rmult_le_pos; lra). nra.
Qed.

Lemma moment_times : forall a b p q, 0 <= a -> 0 <= p -> (0 < a -> 0 < b) -> (0 < p -> 0 < q) ->
  moment (a * p) (b * q) = moment a b * moment p q.
Proof.
  intros a b p q Ha Hp Hab Hpq. unfold moment.
  destruct (Rle_dec a 0) as [A|A]; [replace a with 0 by lra; rewrite Rmult_0_l; destruct (Rle_dec 0 0); lra|].
  destruct (Rle_dec p 0) as [P|P]; [replace p with 0 by lra; rewrite Rmult_0_r; destruct (Rle_dec 0 0); lra|].
  assert (0 < a * p) by (apply Rmult_lt_0_compat; lra).
  destruct (Rle_dec (a * p) 0); [lra|].
  assert (0 < b) by (apply Hab; lra). assert (0 < q) by (apply Hpq; lra).
  rewrite !ln_mult by lra. rewrite <- exp_plus. f_equal. ring.
Qed.

Lemma renyi_scales : forall u a b t, 0 <= a -> 0 <= t -> (0 < a -> 0 < b) ->
  renyi_potential u (a * t) (b * t) = renyi_potential u a b * t.
Proof.
  intros u a b t Ha Ht Hab. unfold renyi_potential. rewrite moment_times by (auto; lra).
  replace (moment t t) with t; [ring|]. unfold moment. destruct (Rle_dec t 0); [lra|].
  replace ((1 + x) * ln t - x * ln t) with (ln t) by ring. rewrite exp_ln; lra.
Qed.

Lemma renyi_step : forall d u n p q a b, chances n p -> renyi_private d n p q -> 0 <= a -> (0 < a -> 0 < b) ->
  sum n (fun i => renyi_potential (u - d) (a * p i) (b * q i)) <= renyi_potential u a b.
Proof.
  intros d u n p q a b [_ Hp] [Hac Hd] Ha Hab.
  rewrite (sum_ext n _ (fun i => constant * exp (x * (u - d)) * moment a b * moment (p i) (q i))).
  - rewrite sum_scale. unfold renyi_potential.
    replace (exp (x * u)) with (exp (x * (u - d)) * exp (x * d)) by (rewrite <- exp_plus; f_equal; ring).
    pose proof constant_pos. pose proof (exp_pos (x * (u - d))). pose proof (moment_nonneg a b).
    assert (0 <= constant * exp (x * (u - d)) * moment a b) by (apply Rmult_le_pos; [nra|auto]). nra.
  - intros i Hi. unfold renyi_potential. rewrite moment_times; auto. ring.
Qed.

(* What the potential is at the start: the conversion of Canonne, Kamath and Steinke that `_order_limit` inverts. *)
Lemma renyi_start : forall e u,
  renyi_potential u 1 (exp e) = exp (x * (u - e)) * exp (- x * ln (1 + / x)) / (1 + x).
Proof.
  intros. unfold renyi_potential, moment. destruct (Rle_dec 1 0); [lra|].
  unfold constant. rewrite ln_1, ln_exp.
  replace (x / (1 + x)) with (/ (1 + / x)) by (field; lra).
  assert (0 < 1 + / x) by (pose proof (Rinv_0_lt_compat x x_pos); lra). rewrite ln_Rinv by auto.
  replace ((1 + x) * 0 - x * e) with (- x * e) by ring.
  replace (x * (u - e)) with (x * u + - x * e) by ring. rewrite exp_plus.
  replace (x * - ln (1 + / x)) with (- x * ln (1 + / x)) by ring. unfold Rdiv. ring.
Qed.
End Renyi.

(* ---- Gaussian privacy: u is what is left of the squared parameter. ----
   `gaussian u a b` stands for what a mechanism with the trade-off function of N(0, 1) against N(sqrt u, 1) makes of
   the weights, that is, the integral of (a phi(x) - b phi(x - sqrt u))+. Used of it are the four facts of the record. *)
Record potential_of_gaussians (gaussian : R -> R -> R -> R) : Prop := {
  gaussian_nonneg : forall u a b, 0 <= u -> 0 <= a -> 0 <= b -> 0 <= gaussian u a b;
  gaussian_stop : forall u a b, 0 <= u -> 0 <= a -> 0 <= b -> a - b <= gaussian u a b;
  gaussian_falls : forall u a b b', 0 <= u -> 0 <= a -> 0 <= b <= b' -> gaussian u a b' <= gaussian u a b;
  gaussian_scales : forall u a b t, 0 <= u -> 0 <= t -> 0 <= a -> 0 <= b -> gaussian u (t * a) (t * b) = t * gaussian u a b }.

(* The four facts hold of every law on the line against its shift by sqrt u, so of the normal law: by the lemma of Neyman and
   Pearson the integral is the largest difference a F(t) - b F(t - sqrt u), F being the cumulative distribution. *)
Section Shifts.
Variable F : R -> R.
Hypothesis F_range : forall t, 0 <= F t <= 1.
Hypothesis F_low : forall e, 0 < e -> exists t, F t <= e.
Hypothesis F_high : forall e, 0 < e -> exists t, 1 - e <= F t.

Definition difference (u a b t : R) := a * F t - b * F (t - sqrt u).

Lemma difference_bounded : forall u a b, bound (fun x => exists t, x = difference u a b t).
Proof.
  intros u a b. exists (Rabs a + Rabs b). intros x (t & ->). unfold difference.
  pose proof (F_range t). pose proof (F_range (t - sqrt u)). pose proof (Rle_abs a). pose proof (Rle_abs (- b)) as Hb.
  rewrite Rabs_Ropp in Hb. pose proof (Rabs_pos a). pose proof (Rabs_pos b). nra.
Qed.

Definition largest_difference (u a b : R) : R :=
  proj1_sig (completeness _ (difference_bounded u a b) (ex_intro _ (difference u a b 0) (ex_intro _ 0 eq_refl))).

Lemma largest_above : forall u a b t, difference u a b t <= largest_difference u a b.
Proof. intros. unfold largest_difference. destruct completeness as [x [U L]]. simpl. apply U. exists t. auto. Qed.

Lemma largest_least : forall u a b x, (forall t, difference u a b t <= x) -> largest_difference u a b <= x.
Proof. intros u a b x H. unfold largest_difference. destruct completeness as [y [U L]]. simpl. apply L. intros z (t & ->). auto. Qed.

Lemma near : forall x y, (forall e, 0 < e -> x - e <= y) -> x <= y.
Proof. intros x y H. destruct (Rle_lt_dec x y) as [|L]; auto. pose proof (H ((x - y) / 2) ltac:(lra)). lra. Qed.

Theorem shifts_have_a_potential : potential_of_gaussians largest_difference.
Proof.
  constructor.
  - intros u a b _ Ha Hb. apply near. intros e He.
    destruct (F_low (e / (b + 1))) as [t Ht]; [apply Rmult_lt_0_compat; [auto | apply Rinv_0_lt_compat; lra]|].
    pose proof (largest_above u a b (t + sqrt u)) as H. unfold difference in H. replace (t + sqrt u - sqrt u) with t in H by ring.
    assert (b * F t <= e) as H1.
    { apply Rle_trans with (b * (e / (b + 1))); [apply Rmult_le_compat_l; auto|].
      replace (b * (e / (b + 1))) with (e * (b / (b + 1))) by (field; lra).
      assert (b / (b + 1) <= 1); [|nra]. apply Rmult_le_reg_r with (b + 1); [lra|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra. }
    pose proof (F_range (t + sqrt u)). assert (0 <= a * F (t + sqrt u)) by (apply Rmult_le_pos; lra). lra.
  - intros u a b _ Ha Hb. apply near. intros e He.
    destruct (F_high (e / (a + 1))) as [t Ht]; [apply Rmult_lt_0_compat; [auto | apply Rinv_0_lt_compat; lra]|].
    pose proof (largest_above u a b t) as H. unfold difference in H.
    assert (a * (e / (a + 1)) <= e) as H1.
    { replace (a * (e / (a + 1))) with (e * (a / (a + 1))) by (field; lra).
      assert (a / (a + 1) <= 1); [|nra]. apply Rmult_le_reg_r with (a + 1); [lra|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra. }
    pose proof (F_range (t - sqrt u)).
    assert (a * (1 - e / (a + 1)) <= a * F t) by (apply Rmult_le_compat_l; auto).
    assert (b * F (t - sqrt u) <= b * 1) by (apply Rmult_le_compat_l; lra). lra.
  - intros u a b b' _ Ha [Hb Hbb]. apply largest_least. intros t.
    apply Rle_trans with (difference u a b t); [|apply largest_above]. unfold difference. pose proof (F_range (t - sqrt u)). nra.
  - intros u a b c _ Hc Ha Hb. destruct Hc as [Hc|<-].
    + apply Rle_antisym.
      * apply largest_least. intros t. pose proof (largest_above u a b t). unfold difference in *. nra.
      * apply Rmult_le_reg_l with (/ c); [apply Rinv_0_lt_compat; auto|]. rewrite <- Rmult_assoc, Rinv_l, Rmult_1_l by lra.
        apply largest_least. intros t. apply Rmult_le_reg_l with c; auto. rewrite <- Rmult_assoc, Rinv_r, Rmult_1_l by lra.
        pose proof (largest_above u (c * a) (c * b) t). unfold difference in *. lra.
    + rewrite !Rmult_0_l. apply Rle_antisym.
      * apply largest_least. intros t. unfold difference. lra.
      * pose proof (largest_above u 0 0 0) as H. unfold difference in H. lra.
Qed.
End Shifts.

Section Gaussian.
Variable gaussian : R -> R -> R -> R.
Hypothesis G : potential_of_gaussians gaussian.

(* A mechanism has the price c beside the reserve r if, with anything from r on left, it is no easier to tell than
   Gaussian noise of squared parameter c: (1) of docs/proofs/filter.md, in terms of weights. *)
Definition has_price (c r : R) (n : nat) (p q : nat -> R) :=
  forall w a b, r <= w -> 0 <= w -> 0 <= a -> 0 <= b ->
    sum n (fun i => gaussian w (a * p i) (b * q i)) <= gaussian (w + c) a b.

(* An amount of pure epsilon, fixed at the start, beside what is left: what it pays for costs the other nothing. *)
Definition beside (left u a b : R) := gaussian u a (b * exp (- left)).

Lemma beside_pure : forall e left u n p q a b, chances n p -> chances n q -> pure_private e n p q ->
  0 <= u -> 0 <= a -> 0 <= b ->
  sum n (fun i => beside (left - e) u (a * p i) (b * q i)) <= beside left u a b.
Proof.
  intros e left u n p q a b [Hp Hp0] [_ Hq0] Hr Hu Ha Hb. unfold beside.
  pose proof (exp_pos (- left)).
  apply Rle_trans with (sum n (fun i => gaussian u a (b * exp (- left)) * p i)).
  - apply sum_le. intros i Hi. specialize (Hp0 i Hi). specialize (Hq0 i Hi). specialize (Hr i Hi).
    assert (0 <= b * exp (- left)) by (apply Rmult_le_pos; lra).
    rewrite (Rmult_comm (gaussian u a _) (p i)), <- (gaussian_scales _ G) by auto. rewrite (Rmult_comm a (p i)).
    apply (gaussian_falls _ G); auto; [apply Rmult_le_pos; auto|].
    replace (exp (- (left - e))) with (exp e * exp (- left)) by (rewrite <- exp_plus; f_equal; ring).
    split; [apply Rmult_le_pos; auto|].
    replace (p i * (b * exp (- left))) with (b * exp (- left) * p i) by ring.
    replace (b * q i * (exp e * exp (- left))) with (b * exp (- left) * (exp e * q i)) by ring.
    apply Rmult_le_compat_l; auto.
  - rewrite sum_scale, Hp. lra.
Qed.

Lemma beside_other : forall c r left u n p q a b, has_price c r n p q -> 0 <= u -> r <= u -> 0 <= a -> 0 <= b ->
  sum n (fun i => beside left u (a * p i) (b * q i)) <= beside left (u + c) a b.
Proof.
  intros c r left u n p q a b H Hu Hr Ha Hb. unfold beside. pose proof (exp_pos (- left)).
  rewrite (sum_ext n _ (fun i => gaussian u (a * p i) (b * exp (- left) * q i))).
  - apply (H u a (b * exp (- left))); auto. apply Rmult_le_pos; lra.
  - intros. f_equal. ring.
Qed.

Lemma beside_stop : forall left u a b, 0 <= left -> 0 <= u -> 0 <= a -> 0 <= b -> a - b <= beside left u a b.
Proof.
  intros left u a b Hl Hu Ha Hb. unfold beside. pose proof (exp_neg_le_1 left Hl). pose proof (exp_pos (- left)).
  apply Rle_trans with (a - b * exp (- left)); [nra|].
  apply (gaussian_stop _ G); auto. apply Rmult_le_pos; lra.
Qed.

Lemma beside_nonneg : forall left u a b, 0 <= u -> 0 <= a -> 0 <= b -> 0 <= beside left u a b.
Proof.
  intros left u a b Hu Ha Hb. unfold beside. pose proof (exp_pos (- left)).
  apply (gaussian_nonneg _ G); auto. apply Rmult_le_pos; lra.
Qed.
End Gaussian.

(* ---- Failures, each counted once: P and P' are the laws with what may fail, R and R' those held to what cannot,
   of one event. None of the failures of the two tables need be related. ---- *)
Theorem failures_once : forall P P' R R' e d s, 0 < e -> 0 <= s <= 1 -> s <= d -> 0 <= R' ->
  R <= e * R' + (d - s) ->
  P <= s + (1 - s) * R -> (1 - s) * R' <= P' ->
  P <= e * P' + d.
Proof.
  intros P P' R R' e d s He Hs Hd HR' Hf HP HP'.
  assert ((1 - s) * R <= (1 - s) * (e * R' + (d - s))) by (apply Rmult_le_compat_l; lra).
  assert (e * ((1 - s) * R') <= e * P') by (apply Rmult_le_compat_l; lra).
  assert (0 <= s * (d - s)) by (apply Rmult_le_pos; lra). nra.
Qed.
