
val negb : bool -> bool

type nat =
| O
| S of nat

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

val concat : 'a1 list list -> 'a1 list

val fold_left : ('a1 -> 'a2 -> 'a1) -> 'a2 list -> 'a1 -> 'a1

val fold_right : ('a2 -> 'a1 -> 'a1) -> 'a1 -> 'a2 list -> 'a1

val existsb : ('a1 -> bool) -> 'a1 list -> bool

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
