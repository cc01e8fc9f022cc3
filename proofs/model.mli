
val negb : bool -> bool

type nat =
| O
| S of nat

val option_map : ('a1 -> 'a2) -> 'a1 option -> 'a2 option

val fst : ('a1 * 'a2) -> 'a1

val snd : ('a1 * 'a2) -> 'a2

val length : 'a1 list -> nat

val app : 'a1 list -> 'a1 list -> 'a1 list

type comparison =
| Eq
| Lt
| Gt

val compOpp : comparison -> comparison

val add : nat -> nat -> nat

type positive =
| XI of positive
| XO of positive
| XH

type z =
| Z0
| Zpos of positive
| Zneg of positive

module Nat :
 sig
  val eqb : nat -> nat -> bool
 end

module Pos :
 sig
  type mask =
  | IsNul
  | IsPos of positive
  | IsNeg
 end

module Coq_Pos :
 sig
  val succ : positive -> positive

  val add : positive -> positive -> positive

  val add_carry : positive -> positive -> positive

  val pred_double : positive -> positive

  type mask = Pos.mask =
  | IsNul
  | IsPos of positive
  | IsNeg

  val succ_double_mask : mask -> mask

  val double_mask : mask -> mask

  val double_pred_mask : positive -> mask

  val sub_mask : positive -> positive -> mask

  val sub_mask_carry : positive -> positive -> mask

  val sub : positive -> positive -> positive

  val mul : positive -> positive -> positive

  val iter : ('a1 -> 'a1) -> 'a1 -> positive -> 'a1

  val size_nat : positive -> nat

  val size : positive -> positive

  val compare_cont : comparison -> positive -> positive -> comparison

  val compare : positive -> positive -> comparison

  val eqb : positive -> positive -> bool

  val ggcdn : nat -> positive -> positive -> positive * (positive * positive)

  val ggcd : positive -> positive -> positive * (positive * positive)

  val iter_op : ('a1 -> 'a1 -> 'a1) -> positive -> 'a1 -> 'a1

  val to_nat : positive -> nat

  val of_succ_nat : nat -> positive
 end

module Z :
 sig
  val double : z -> z

  val succ_double : z -> z

  val pred_double : z -> z

  val pos_sub : positive -> positive -> z

  val add : z -> z -> z

  val opp : z -> z

  val sub : z -> z -> z

  val mul : z -> z -> z

  val pow_pos : z -> positive -> z

  val pow : z -> z -> z

  val compare : z -> z -> comparison

  val sgn : z -> z

  val leb : z -> z -> bool

  val ltb : z -> z -> bool

  val eqb : z -> z -> bool

  val max : z -> z -> z

  val min : z -> z -> z

  val abs : z -> z

  val to_nat : z -> nat

  val of_nat : nat -> z

  val to_pos : z -> positive

  val pos_div_eucl : positive -> z -> z * z

  val div_eucl : z -> z -> z * z

  val div : z -> z -> z

  val modulo : z -> z -> z

  val odd : z -> bool

  val log2 : z -> z

  val ggcd : z -> z -> z * (z * z)
 end

val zeq_bool : z -> z -> bool

val nth : nat -> 'a1 list -> 'a1 -> 'a1

val nth_error : 'a1 list -> nat -> 'a1 option

val concat : 'a1 list list -> 'a1 list

val map : ('a1 -> 'a2) -> 'a1 list -> 'a2 list

val flat_map : ('a1 -> 'a2 list) -> 'a1 list -> 'a2 list

val fold_left : ('a1 -> 'a2 -> 'a1) -> 'a2 list -> 'a1 -> 'a1

val fold_right : ('a2 -> 'a1 -> 'a1) -> 'a1 -> 'a2 list -> 'a1

val existsb : ('a1 -> bool) -> 'a1 list -> bool

val forallb : ('a1 -> bool) -> 'a1 list -> bool

val filter : ('a1 -> bool) -> 'a1 list -> 'a1 list

val combine : 'a1 list -> 'a2 list -> ('a1 * 'a2) list

val seq : nat -> nat -> nat list

type q = { qnum : z; qden : positive }

val qeq_bool : q -> q -> bool

val qle_bool : q -> q -> bool

val qplus : q -> q -> q

val qred : q -> q

type 'a prog =
| Ret of 'a
| Stuck
| Draw of (z -> 'a prog)

val bind : 'a1 prog -> ('a1 -> 'a2 prog) -> 'a2 prog

val run : 'a1 prog -> z list -> ('a1 * z list) option

val decide_by : z -> (z -> z -> 'a1 option) -> nat -> z -> z -> 'a1 prog

val bit_length : z -> z

val series : nat -> z -> z -> z -> z -> z -> (z * z) option

val square : nat -> z -> z -> z -> z * z

val exp_bounds : nat -> z -> z -> z -> (z * z) option

val loss_floor : nat -> nat -> z -> z -> z -> z -> z option

val lookup_from : z -> z list -> z -> z -> z option

val lookup : (z -> z list) -> z -> z -> z option

val signed : z -> z -> z

val narrow : z -> (z -> z list) -> nat -> z prog

val keep : (z -> z) -> z -> z -> z -> z -> bool option

val trial :
  z -> (z -> z list) -> (z -> z -> z -> z) -> (z -> z -> z * z) -> z -> z ->
  nat -> z option prog

val wide : z option prog -> nat -> z prog

val pair_loss : z -> z -> z -> z -> z -> z -> z * z

val flip_decide : (z -> (z * z) option) -> z -> z -> bool option

val tails : nat -> z -> z -> z -> z -> z -> z -> z -> z list option

val laplace_thresholds : nat -> z -> z -> z -> z -> bool -> z list option

type cost = { pure : q option; fails : q; prices : z list option; uses : 
              z; renyi : z list }

type limits = { most_gaussian : z; most_orders : z list; set_aside : bool }

type budget = { epsilon : q; delta : q; selection : q; plain : limits;
                aside : (q -> limits); whole : limits }

val walk : (z * z) list -> z -> z -> z option

val pay_cost : z list -> z option -> cost -> z option

val pay : z list -> z option -> cost list -> z option

val gaussian_left : z list -> limits -> cost list list -> z option

val order_sum : nat -> cost list -> z

val admits_trail : z list -> limits -> cost list list -> bool

val sum_fails : cost list -> q

val sum_pure : cost list -> q option

val below : q -> q -> bool

val choose_limits : z list -> budget -> cost list -> limits option

val choose : z list -> budget -> cost list -> limits * q

val admits : z list -> budget -> cost list list -> bool

val mem : z -> z list -> bool

type 'c spent = { others : 'c list; groups : (z list * 'c list) list }

val nothing : 'a1 spent

val unnamed : z list -> (z list * 'a1 list) list -> z list

val not_empty : (z list * 'a1 list) -> bool

val add0 : 'a1 spent -> 'a1 -> z list option -> 'a1 spent

val find : 'a1 spent -> z list option -> 'a1 list list

type 'c charge = { question : z; of_version : z; cost0 : 'c;
                   reads : z list option; asked_by : z option }

type phase =
| Idle
| Took of z
| Fresh of z * z
| Under of z * nat * z
| Holding of z * nat * z

type event =
| DidCharge of nat
| DidRead of nat
| DidStore of nat * z
| DidAnswer of nat * z
| DidSee of nat * z

type 'c state = { charges : 'c charge list; whole0 : 'c spent;
                  each : (z -> 'c spent); answers : (nat -> z option);
                  progress : (nat -> z option); phases : (z -> phase);
                  version : z; trace : event list }

val start : 'a1 state

type 'c op =
| Take of z * z
| Look of z
| Spend of z * 'c * z list option * z option
| ReadRecords of z
| Keep of z * z
| Finish of z * z
| Crash of z
| Change of z

val holds : phase -> z -> bool

val put : (z -> 'a1) -> z -> 'a1 -> z -> 'a1

val put_n : (nat -> 'a1) -> nat -> 'a1 -> nat -> 'a1

val go : 'a1 state -> z -> phase -> 'a1 state

val log : 'a1 state -> event list -> 'a1 state

val first_from :
  nat -> 'a1 charge list -> (nat -> 'a1 charge -> 'a2 option) -> 'a2 option

val same : z -> z -> 'a1 charge -> bool

val find_answer : 'a1 state -> z -> z -> (nat * z) option

val find_progress : 'a1 state -> z -> z -> (nat * z) option

val allowed :
  ('a1 list -> bool) -> (z -> ('a1 list -> bool) option) -> 'a1 state -> 'a1
  -> z list option -> z option -> bool

val matches : z option -> z -> z -> bool

val step :
  ('a1 list -> bool) -> (z -> ('a1 list -> bool) option) -> bool -> z list ->
  'a1 state -> 'a1 op -> 'a1 state

val total : nat -> (nat -> z) -> z

val norm1 : nat -> (nat -> z) -> z

type neighbours =
| AddRemove
| Replace

val factor_L1 : neighbours -> z

val factor_L2 : neighbours -> bool -> z

val share : nat -> z -> z -> z

val queried : nat -> (nat -> nat -> z) -> (nat -> z) -> nat -> z

val hold : z -> z -> z

val distance : nat -> (nat -> z) -> (nat -> z) -> z

val norm_score : z -> z -> z -> z -> z

val lost : z -> z -> z -> z
