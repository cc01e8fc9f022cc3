
(** val negb : bool -> bool **)

let negb = function
| true -> false
| false -> true

type nat =
| O
| S of nat

(** val option_map : ('a1 -> 'a2) -> 'a1 option -> 'a2 option **)

let option_map f = function
| Some a -> Some (f a)
| None -> None

(** val fst : ('a1 * 'a2) -> 'a1 **)

let fst = function
| (x, _) -> x

(** val snd : ('a1 * 'a2) -> 'a2 **)

let snd = function
| (_, y) -> y

(** val length : 'a1 list -> nat **)

let rec length = function
| [] -> O
| _ :: l' -> S (length l')

(** val app : 'a1 list -> 'a1 list -> 'a1 list **)

let rec app l m =
  match l with
  | [] -> m
  | a :: l1 -> a :: (app l1 m)

type comparison =
| Eq
| Lt
| Gt

(** val compOpp : comparison -> comparison **)

let compOpp = function
| Eq -> Eq
| Lt -> Gt
| Gt -> Lt

module Coq__1 = struct
 (** val add : nat -> nat -> nat **)
 let rec add n m =
   match n with
   | O -> m
   | S p -> S (add p m)
end
include Coq__1

type positive =
| XI of positive
| XO of positive
| XH

type z =
| Z0
| Zpos of positive
| Zneg of positive

module Nat =
 struct
  (** val eqb : nat -> nat -> bool **)

  let rec eqb n m =
    match n with
    | O -> (match m with
            | O -> true
            | S _ -> false)
    | S n' -> (match m with
               | O -> false
               | S m' -> eqb n' m')
 end

module Pos =
 struct
  type mask =
  | IsNul
  | IsPos of positive
  | IsNeg
 end

module Coq_Pos =
 struct
  (** val succ : positive -> positive **)

  let rec succ = function
  | XI p -> XO (succ p)
  | XO p -> XI p
  | XH -> XO XH

  (** val add : positive -> positive -> positive **)

  let rec add x y =
    match x with
    | XI p ->
      (match y with
       | XI q0 -> XO (add_carry p q0)
       | XO q0 -> XI (add p q0)
       | XH -> XO (succ p))
    | XO p ->
      (match y with
       | XI q0 -> XI (add p q0)
       | XO q0 -> XO (add p q0)
       | XH -> XI p)
    | XH -> (match y with
             | XI q0 -> XO (succ q0)
             | XO q0 -> XI q0
             | XH -> XO XH)

  (** val add_carry : positive -> positive -> positive **)

  and add_carry x y =
    match x with
    | XI p ->
      (match y with
       | XI q0 -> XI (add_carry p q0)
       | XO q0 -> XO (add_carry p q0)
       | XH -> XI (succ p))
    | XO p ->
      (match y with
       | XI q0 -> XO (add_carry p q0)
       | XO q0 -> XI (add p q0)
       | XH -> XO (succ p))
    | XH ->
      (match y with
       | XI q0 -> XI (succ q0)
       | XO q0 -> XO (succ q0)
       | XH -> XI XH)

  (** val pred_double : positive -> positive **)

  let rec pred_double = function
  | XI p -> XI (XO p)
  | XO p -> XI (pred_double p)
  | XH -> XH

  type mask = Pos.mask =
  | IsNul
  | IsPos of positive
  | IsNeg

  (** val succ_double_mask : mask -> mask **)

  let succ_double_mask = function
  | IsNul -> IsPos XH
  | IsPos p -> IsPos (XI p)
  | IsNeg -> IsNeg

  (** val double_mask : mask -> mask **)

  let double_mask = function
  | IsPos p -> IsPos (XO p)
  | x0 -> x0

  (** val double_pred_mask : positive -> mask **)

  let double_pred_mask = function
  | XI p -> IsPos (XO (XO p))
  | XO p -> IsPos (XO (pred_double p))
  | XH -> IsNul

  (** val sub_mask : positive -> positive -> mask **)

  let rec sub_mask x y =
    match x with
    | XI p ->
      (match y with
       | XI q0 -> double_mask (sub_mask p q0)
       | XO q0 -> succ_double_mask (sub_mask p q0)
       | XH -> IsPos (XO p))
    | XO p ->
      (match y with
       | XI q0 -> succ_double_mask (sub_mask_carry p q0)
       | XO q0 -> double_mask (sub_mask p q0)
       | XH -> IsPos (pred_double p))
    | XH -> (match y with
             | XH -> IsNul
             | _ -> IsNeg)

  (** val sub_mask_carry : positive -> positive -> mask **)

  and sub_mask_carry x y =
    match x with
    | XI p ->
      (match y with
       | XI q0 -> succ_double_mask (sub_mask_carry p q0)
       | XO q0 -> double_mask (sub_mask p q0)
       | XH -> IsPos (pred_double p))
    | XO p ->
      (match y with
       | XI q0 -> double_mask (sub_mask_carry p q0)
       | XO q0 -> succ_double_mask (sub_mask_carry p q0)
       | XH -> double_pred_mask p)
    | XH -> IsNeg

  (** val sub : positive -> positive -> positive **)

  let sub x y =
    match sub_mask x y with
    | IsPos z0 -> z0
    | _ -> XH

  (** val mul : positive -> positive -> positive **)

  let rec mul x y =
    match x with
    | XI p -> add y (XO (mul p y))
    | XO p -> XO (mul p y)
    | XH -> y

  (** val iter : ('a1 -> 'a1) -> 'a1 -> positive -> 'a1 **)

  let rec iter f x = function
  | XI n' -> f (iter f (iter f x n') n')
  | XO n' -> iter f (iter f x n') n'
  | XH -> f x

  (** val size_nat : positive -> nat **)

  let rec size_nat = function
  | XI p0 -> S (size_nat p0)
  | XO p0 -> S (size_nat p0)
  | XH -> S O

  (** val size : positive -> positive **)

  let rec size = function
  | XI p0 -> succ (size p0)
  | XO p0 -> succ (size p0)
  | XH -> XH

  (** val compare_cont : comparison -> positive -> positive -> comparison **)

  let rec compare_cont r x y =
    match x with
    | XI p ->
      (match y with
       | XI q0 -> compare_cont r p q0
       | XO q0 -> compare_cont Gt p q0
       | XH -> Gt)
    | XO p ->
      (match y with
       | XI q0 -> compare_cont Lt p q0
       | XO q0 -> compare_cont r p q0
       | XH -> Gt)
    | XH -> (match y with
             | XH -> r
             | _ -> Lt)

  (** val compare : positive -> positive -> comparison **)

  let compare =
    compare_cont Eq

  (** val eqb : positive -> positive -> bool **)

  let rec eqb p q0 =
    match p with
    | XI p0 -> (match q0 with
                | XI q1 -> eqb p0 q1
                | _ -> false)
    | XO p0 -> (match q0 with
                | XO q1 -> eqb p0 q1
                | _ -> false)
    | XH -> (match q0 with
             | XH -> true
             | _ -> false)

  (** val ggcdn :
      nat -> positive -> positive -> positive * (positive * positive) **)

  let rec ggcdn n a b =
    match n with
    | O -> (XH, (a, b))
    | S n0 ->
      (match a with
       | XI a' ->
         (match b with
          | XI b' ->
            (match compare a' b' with
             | Eq -> (a, (XH, XH))
             | Lt ->
               let (g, p) = ggcdn n0 (sub b' a') a in
               let (ba, aa) = p in (g, (aa, (add aa (XO ba))))
             | Gt ->
               let (g, p) = ggcdn n0 (sub a' b') b in
               let (ab, bb) = p in (g, ((add bb (XO ab)), bb)))
          | XO b0 ->
            let (g, p) = ggcdn n0 a b0 in
            let (aa, bb) = p in (g, (aa, (XO bb)))
          | XH -> (XH, (a, XH)))
       | XO a0 ->
         (match b with
          | XI _ ->
            let (g, p) = ggcdn n0 a0 b in
            let (aa, bb) = p in (g, ((XO aa), bb))
          | XO b0 -> let (g, p) = ggcdn n0 a0 b0 in ((XO g), p)
          | XH -> (XH, (a, XH)))
       | XH -> (XH, (XH, b)))

  (** val ggcd : positive -> positive -> positive * (positive * positive) **)

  let ggcd a b =
    ggcdn (Coq__1.add (size_nat a) (size_nat b)) a b

  (** val iter_op : ('a1 -> 'a1 -> 'a1) -> positive -> 'a1 -> 'a1 **)

  let rec iter_op op0 p a =
    match p with
    | XI p0 -> op0 a (iter_op op0 p0 (op0 a a))
    | XO p0 -> iter_op op0 p0 (op0 a a)
    | XH -> a

  (** val to_nat : positive -> nat **)

  let to_nat x =
    iter_op Coq__1.add x (S O)

  (** val of_succ_nat : nat -> positive **)

  let rec of_succ_nat = function
  | O -> XH
  | S x -> succ (of_succ_nat x)
 end

module Z =
 struct
  (** val double : z -> z **)

  let double = function
  | Z0 -> Z0
  | Zpos p -> Zpos (XO p)
  | Zneg p -> Zneg (XO p)

  (** val succ_double : z -> z **)

  let succ_double = function
  | Z0 -> Zpos XH
  | Zpos p -> Zpos (XI p)
  | Zneg p -> Zneg (Coq_Pos.pred_double p)

  (** val pred_double : z -> z **)

  let pred_double = function
  | Z0 -> Zneg XH
  | Zpos p -> Zpos (Coq_Pos.pred_double p)
  | Zneg p -> Zneg (XI p)

  (** val pos_sub : positive -> positive -> z **)

  let rec pos_sub x y =
    match x with
    | XI p ->
      (match y with
       | XI q0 -> double (pos_sub p q0)
       | XO q0 -> succ_double (pos_sub p q0)
       | XH -> Zpos (XO p))
    | XO p ->
      (match y with
       | XI q0 -> pred_double (pos_sub p q0)
       | XO q0 -> double (pos_sub p q0)
       | XH -> Zpos (Coq_Pos.pred_double p))
    | XH ->
      (match y with
       | XI q0 -> Zneg (XO q0)
       | XO q0 -> Zneg (Coq_Pos.pred_double q0)
       | XH -> Z0)

  (** val add : z -> z -> z **)

  let add x y =
    match x with
    | Z0 -> y
    | Zpos x' ->
      (match y with
       | Z0 -> x
       | Zpos y' -> Zpos (Coq_Pos.add x' y')
       | Zneg y' -> pos_sub x' y')
    | Zneg x' ->
      (match y with
       | Z0 -> x
       | Zpos y' -> pos_sub y' x'
       | Zneg y' -> Zneg (Coq_Pos.add x' y'))

  (** val opp : z -> z **)

  let opp = function
  | Z0 -> Z0
  | Zpos x0 -> Zneg x0
  | Zneg x0 -> Zpos x0

  (** val sub : z -> z -> z **)

  let sub m n =
    add m (opp n)

  (** val mul : z -> z -> z **)

  let mul x y =
    match x with
    | Z0 -> Z0
    | Zpos x' ->
      (match y with
       | Z0 -> Z0
       | Zpos y' -> Zpos (Coq_Pos.mul x' y')
       | Zneg y' -> Zneg (Coq_Pos.mul x' y'))
    | Zneg x' ->
      (match y with
       | Z0 -> Z0
       | Zpos y' -> Zneg (Coq_Pos.mul x' y')
       | Zneg y' -> Zpos (Coq_Pos.mul x' y'))

  (** val pow_pos : z -> positive -> z **)

  let pow_pos z0 =
    Coq_Pos.iter (mul z0) (Zpos XH)

  (** val pow : z -> z -> z **)

  let pow x = function
  | Z0 -> Zpos XH
  | Zpos p -> pow_pos x p
  | Zneg _ -> Z0

  (** val compare : z -> z -> comparison **)

  let compare x y =
    match x with
    | Z0 -> (match y with
             | Z0 -> Eq
             | Zpos _ -> Lt
             | Zneg _ -> Gt)
    | Zpos x' -> (match y with
                  | Zpos y' -> Coq_Pos.compare x' y'
                  | _ -> Gt)
    | Zneg x' ->
      (match y with
       | Zneg y' -> compOpp (Coq_Pos.compare x' y')
       | _ -> Lt)

  (** val sgn : z -> z **)

  let sgn = function
  | Z0 -> Z0
  | Zpos _ -> Zpos XH
  | Zneg _ -> Zneg XH

  (** val leb : z -> z -> bool **)

  let leb x y =
    match compare x y with
    | Gt -> false
    | _ -> true

  (** val ltb : z -> z -> bool **)

  let ltb x y =
    match compare x y with
    | Lt -> true
    | _ -> false

  (** val eqb : z -> z -> bool **)

  let eqb x y =
    match x with
    | Z0 -> (match y with
             | Z0 -> true
             | _ -> false)
    | Zpos p -> (match y with
                 | Zpos q0 -> Coq_Pos.eqb p q0
                 | _ -> false)
    | Zneg p -> (match y with
                 | Zneg q0 -> Coq_Pos.eqb p q0
                 | _ -> false)

  (** val max : z -> z -> z **)

  let max n m =
    match compare n m with
    | Lt -> m
    | _ -> n

  (** val min : z -> z -> z **)

  let min n m =
    match compare n m with
    | Gt -> m
    | _ -> n

  (** val abs : z -> z **)

  let abs = function
  | Zneg p -> Zpos p
  | x -> x

  (** val to_nat : z -> nat **)

  let to_nat = function
  | Zpos p -> Coq_Pos.to_nat p
  | _ -> O

  (** val of_nat : nat -> z **)

  let of_nat = function
  | O -> Z0
  | S n0 -> Zpos (Coq_Pos.of_succ_nat n0)

  (** val to_pos : z -> positive **)

  let to_pos = function
  | Zpos p -> p
  | _ -> XH

  (** val pos_div_eucl : positive -> z -> z * z **)

  let rec pos_div_eucl a b =
    match a with
    | XI a' ->
      let (q0, r) = pos_div_eucl a' b in
      let r' = add (mul (Zpos (XO XH)) r) (Zpos XH) in
      if ltb r' b
      then ((mul (Zpos (XO XH)) q0), r')
      else ((add (mul (Zpos (XO XH)) q0) (Zpos XH)), (sub r' b))
    | XO a' ->
      let (q0, r) = pos_div_eucl a' b in
      let r' = mul (Zpos (XO XH)) r in
      if ltb r' b
      then ((mul (Zpos (XO XH)) q0), r')
      else ((add (mul (Zpos (XO XH)) q0) (Zpos XH)), (sub r' b))
    | XH -> if leb (Zpos (XO XH)) b then (Z0, (Zpos XH)) else ((Zpos XH), Z0)

  (** val div_eucl : z -> z -> z * z **)

  let div_eucl a b =
    match a with
    | Z0 -> (Z0, Z0)
    | Zpos a' ->
      (match b with
       | Z0 -> (Z0, a)
       | Zpos _ -> pos_div_eucl a' b
       | Zneg b' ->
         let (q0, r) = pos_div_eucl a' (Zpos b') in
         (match r with
          | Z0 -> ((opp q0), Z0)
          | _ -> ((opp (add q0 (Zpos XH))), (add b r))))
    | Zneg a' ->
      (match b with
       | Z0 -> (Z0, a)
       | Zpos _ ->
         let (q0, r) = pos_div_eucl a' b in
         (match r with
          | Z0 -> ((opp q0), Z0)
          | _ -> ((opp (add q0 (Zpos XH))), (sub b r)))
       | Zneg b' -> let (q0, r) = pos_div_eucl a' (Zpos b') in (q0, (opp r)))

  (** val div : z -> z -> z **)

  let div a b =
    let (q0, _) = div_eucl a b in q0

  (** val modulo : z -> z -> z **)

  let modulo a b =
    let (_, r) = div_eucl a b in r

  (** val odd : z -> bool **)

  let odd = function
  | Z0 -> false
  | Zpos p -> (match p with
               | XO _ -> false
               | _ -> true)
  | Zneg p -> (match p with
               | XO _ -> false
               | _ -> true)

  (** val log2 : z -> z **)

  let log2 = function
  | Zpos p0 ->
    (match p0 with
     | XI p -> Zpos (Coq_Pos.size p)
     | XO p -> Zpos (Coq_Pos.size p)
     | XH -> Z0)
  | _ -> Z0

  (** val ggcd : z -> z -> z * (z * z) **)

  let ggcd a b =
    match a with
    | Z0 -> ((abs b), (Z0, (sgn b)))
    | Zpos a0 ->
      (match b with
       | Z0 -> ((abs a), ((sgn a), Z0))
       | Zpos b0 ->
         let (g, p) = Coq_Pos.ggcd a0 b0 in
         let (aa, bb) = p in ((Zpos g), ((Zpos aa), (Zpos bb)))
       | Zneg b0 ->
         let (g, p) = Coq_Pos.ggcd a0 b0 in
         let (aa, bb) = p in ((Zpos g), ((Zpos aa), (Zneg bb))))
    | Zneg a0 ->
      (match b with
       | Z0 -> ((abs a), ((sgn a), Z0))
       | Zpos b0 ->
         let (g, p) = Coq_Pos.ggcd a0 b0 in
         let (aa, bb) = p in ((Zpos g), ((Zneg aa), (Zpos bb)))
       | Zneg b0 ->
         let (g, p) = Coq_Pos.ggcd a0 b0 in
         let (aa, bb) = p in ((Zpos g), ((Zneg aa), (Zneg bb))))
 end

(** val zeq_bool : z -> z -> bool **)

let zeq_bool x y =
  match Z.compare x y with
  | Eq -> true
  | _ -> false

(** val nth : nat -> 'a1 list -> 'a1 -> 'a1 **)

let rec nth n l default =
  match n with
  | O -> (match l with
          | [] -> default
          | x :: _ -> x)
  | S m -> (match l with
            | [] -> default
            | _ :: t -> nth m t default)

(** val nth_error : 'a1 list -> nat -> 'a1 option **)

let rec nth_error l = function
| O -> (match l with
        | [] -> None
        | x :: _ -> Some x)
| S n0 -> (match l with
           | [] -> None
           | _ :: l0 -> nth_error l0 n0)

(** val concat : 'a1 list list -> 'a1 list **)

let rec concat = function
| [] -> []
| x :: l0 -> app x (concat l0)

(** val map : ('a1 -> 'a2) -> 'a1 list -> 'a2 list **)

let rec map f = function
| [] -> []
| a :: t -> (f a) :: (map f t)

(** val flat_map : ('a1 -> 'a2 list) -> 'a1 list -> 'a2 list **)

let rec flat_map f = function
| [] -> []
| x :: t -> app (f x) (flat_map f t)

(** val fold_left : ('a1 -> 'a2 -> 'a1) -> 'a2 list -> 'a1 -> 'a1 **)

let rec fold_left f l a0 =
  match l with
  | [] -> a0
  | b :: t -> fold_left f t (f a0 b)

(** val fold_right : ('a2 -> 'a1 -> 'a1) -> 'a1 -> 'a2 list -> 'a1 **)

let rec fold_right f a0 = function
| [] -> a0
| b :: t -> f b (fold_right f a0 t)

(** val existsb : ('a1 -> bool) -> 'a1 list -> bool **)

let rec existsb f = function
| [] -> false
| a :: l0 -> (||) (f a) (existsb f l0)

(** val forallb : ('a1 -> bool) -> 'a1 list -> bool **)

let rec forallb f = function
| [] -> true
| a :: l0 -> (&&) (f a) (forallb f l0)

(** val filter : ('a1 -> bool) -> 'a1 list -> 'a1 list **)

let rec filter f = function
| [] -> []
| x :: l0 -> if f x then x :: (filter f l0) else filter f l0

(** val combine : 'a1 list -> 'a2 list -> ('a1 * 'a2) list **)

let rec combine l l' =
  match l with
  | [] -> []
  | x :: tl ->
    (match l' with
     | [] -> []
     | y :: tl' -> (x, y) :: (combine tl tl'))

(** val seq : nat -> nat -> nat list **)

let rec seq start0 = function
| O -> []
| S len0 -> start0 :: (seq (S start0) len0)

type q = { qnum : z; qden : positive }

(** val qeq_bool : q -> q -> bool **)

let qeq_bool x y =
  zeq_bool (Z.mul x.qnum (Zpos y.qden)) (Z.mul y.qnum (Zpos x.qden))

(** val qle_bool : q -> q -> bool **)

let qle_bool x y =
  Z.leb (Z.mul x.qnum (Zpos y.qden)) (Z.mul y.qnum (Zpos x.qden))

(** val qplus : q -> q -> q **)

let qplus x y =
  { qnum = (Z.add (Z.mul x.qnum (Zpos y.qden)) (Z.mul y.qnum (Zpos x.qden)));
    qden = (Coq_Pos.mul x.qden y.qden) }

(** val qred : q -> q **)

let qred q0 =
  let { qnum = q1; qden = q2 } = q0 in
  let (r1, r2) = snd (Z.ggcd q1 (Zpos q2)) in
  { qnum = r1; qden = (Z.to_pos r2) }

type 'a prog =
| Ret of 'a
| Stuck
| Draw of (z -> 'a prog)

(** val bind : 'a1 prog -> ('a1 -> 'a2 prog) -> 'a2 prog **)

let rec bind p f =
  match p with
  | Ret a -> f a
  | Stuck -> Stuck
  | Draw next -> Draw (fun w -> bind (next w) f)

(** val run : 'a1 prog -> z list -> ('a1 * z list) option **)

let rec run p words =
  match p with
  | Ret a -> Some (a, words)
  | Stuck -> None
  | Draw next ->
    (match words with
     | [] -> None
     | w :: words0 -> run (next w) words0)

(** val decide_by :
    z -> (z -> z -> 'a1 option) -> nat -> z -> z -> 'a1 prog **)

let rec decide_by word_bits decide fuel b v =
  match decide b v with
  | Some a -> Ret a
  | None ->
    (match fuel with
     | O -> Stuck
     | S fuel0 ->
       Draw (fun w ->
         decide_by word_bits decide fuel0 (Z.add b word_bits)
           (Z.add (Z.mul v (Z.pow (Zpos (XO XH)) word_bits)) w)))

(** val bit_length : z -> z **)

let bit_length z0 =
  if Z.leb z0 Z0 then Z0 else Z.add (Z.log2 z0) (Zpos XH)

(** val series : nat -> z -> z -> z -> z -> z -> (z * z) option **)

let rec series fuel argument one order term total0 =
  match fuel with
  | O -> None
  | S fuel0 ->
    let term0 = Z.div (Z.mul term argument) (Z.mul order one) in
    if Z.eqb term0 Z0
    then Some (total0, (Z.add (Z.mul (Zpos (XO XH)) order) (Zpos (XI XH))))
    else series fuel0 argument one (Z.add order (Zpos XH)) term0
           (if Z.odd order then Z.sub total0 term0 else Z.add total0 term0)

(** val square : nat -> z -> z -> z -> z * z **)

let rec square times one value error =
  match times with
  | O -> (value, error)
  | S times0 ->
    square times0 one (Z.div (Z.mul value value) one)
      (Z.add (Z.mul (Zpos (XO XH)) error) (Zpos XH))

(** val exp_bounds : nat -> z -> z -> z -> (z * z) option **)

let exp_bounds fuel n d bits =
  if Z.eqb n Z0
  then Some ((Z.pow (Zpos (XO XH)) bits), (Z.pow (Zpos (XO XH)) bits))
  else if Z.leb (Z.mul bits d) n
       then Some (Z0, (Zpos XH))
       else let halvings =
              Z.add (bit_length (Z.div n d)) (Zpos (XO (XO (XO XH))))
            in
            let work =
              Z.add (Z.add (Z.add bits halvings) (bit_length bits)) (Zpos (XO
                (XO (XO (XO XH)))))
            in
            let one = Z.pow (Zpos (XO XH)) work in
            (match series fuel
                     (Z.div
                       (Z.mul n (Z.pow (Zpos (XO XH)) (Z.sub work halvings)))
                       d) one (Zpos XH) one one with
             | Some p ->
               let (value, error) = p in
               let (value0, error0) =
                 square (Z.to_nat halvings) one value error
               in
               let unit0 = Z.pow (Zpos (XO XH)) (Z.sub work bits) in
               Some ((Z.max (Z.div (Z.sub value0 error0) unit0) Z0),
               (Z.min (Z.opp (Z.div (Z.opp (Z.add value0 error0)) unit0))
                 (Z.pow (Zpos (XO XH)) bits)))
             | None -> None)

(** val loss_floor : nat -> nat -> z -> z -> z -> z -> z option **)

let rec loss_floor fuel terms guard n d bits =
  match fuel with
  | O -> None
  | S fuel' ->
    (match exp_bounds terms n d (Z.add bits guard) with
     | Some p ->
       let (low, high) = p in
       let one = Z.pow (Zpos (XO XH)) (Z.add bits guard) in
       let floor = Z.div (Z.sub one high) (Z.pow (Zpos (XO XH)) guard) in
       if Z.eqb floor
            (Z.min (Z.div (Z.sub one low) (Z.pow (Zpos (XO XH)) guard))
              (Z.sub (Z.pow (Zpos (XO XH)) bits) (Zpos XH)))
       then Some floor
       else loss_floor fuel' terms (Z.mul guard (Zpos (XO XH))) n d bits
     | None -> None)

(** val lookup_from : z -> z list -> z -> z -> z option **)

let rec lookup_from k l top v =
  match l with
  | [] -> if Z.ltb v top then Some k else None
  | t :: l0 ->
    if Z.ltb v t
    then Some k
    else if Z.eqb v t then None else lookup_from (Z.add k (Zpos XH)) l0 top v

(** val lookup : (z -> z list) -> z -> z -> z option **)

let lookup table b v =
  lookup_from Z0 (table b) (Z.sub (Z.pow (Zpos (XO XH)) b) (Zpos XH)) v

(** val signed : z -> z -> z **)

let signed w x =
  if Z.odd w then Z.opp x else x

(** val narrow : z -> (z -> z list) -> nat -> z prog **)

let narrow word_bits table fuel =
  Draw (fun w ->
    bind
      (decide_by word_bits (lookup table) fuel (Z.sub word_bits (Zpos XH))
        (Z.div w (Zpos (XO XH)))) (fun k -> Ret (signed w k)))

(** val keep : (z -> z) -> z -> z -> z -> z -> bool option **)

let keep floor n d b v =
  if Z.eqb n Z0
  then Some true
  else let most = Z.opp (Z.div (Z.opp (Z.mul n (Z.pow (Zpos (XO XH)) b))) d)
       in
       if Z.leb most v
       then Some true
       else if Z.leb (Z.add v (Zpos (XO XH)))
                 (Z.sub
                   (Z.sub most
                     (Z.div (Z.mul most most)
                       (Z.pow (Zpos (XO XH)) (Z.add b (Zpos XH))))) (Zpos XH))
            then Some false
            else if Z.eqb v (floor b) then None else Some (Z.ltb (floor b) v)

(** val trial :
    z -> (z -> z list) -> (z -> z -> z -> z) -> (z -> z -> z * z) -> z -> z
    -> nat -> z option prog **)

let trial word_bits table floor loss shift keep_bits fuel =
  Draw (fun w1 -> Draw (fun w2 ->
    bind
      (decide_by word_bits (lookup table) fuel (Z.sub word_bits (Zpos XH))
        (Z.div w1 (Zpos (XO XH)))) (fun block ->
      let offset = Z.modulo w2 (Z.pow (Zpos (XO XH)) shift) in
      let (n, d) = loss block offset in
      bind
        (decide_by word_bits (keep (floor n d) n d) fuel keep_bits
          (Z.div w2 (Z.pow (Zpos (XO XH)) (Z.sub word_bits keep_bits))))
        (fun kept ->
        let x = Z.add (Z.mul block (Z.pow (Zpos (XO XH)) shift)) offset in
        Ret
        (if (&&) kept (negb ((&&) (Z.eqb x Z0) (Z.odd w1)))
         then Some (signed w1 x)
         else None)))))

(** val wide : z option prog -> nat -> z prog **)

let rec wide one = function
| O -> Stuck
| S tries0 ->
  bind one (fun o -> match o with
                     | Some x -> Ret x
                     | None -> wide one tries0)

(** val pair_loss : z -> z -> z -> z -> z -> z -> z * z **)

let pair_loss power sn sd shift block offset =
  let first = Z.mul block (Z.pow (Zpos (XO XH)) shift) in
  ((Z.mul (Z.sub (Z.pow (Z.add first offset) power) (Z.pow first power))
     (Z.pow sd power)), (Z.mul power (Z.pow sn power)))

(** val flip_decide : (z -> (z * z) option) -> z -> z -> bool option **)

let flip_decide bounds b v =
  match bounds b with
  | Some p ->
    let (low, high) = p in
    if Z.ltb v low
    then Some true
    else if Z.leb high v then Some false else None
  | None -> None

(** val tails : nat -> z -> z -> z -> z -> z -> z -> z -> z list option **)

let rec tails fuel tail error low growth precision guard top =
  match fuel with
  | O -> None
  | S fuel0 ->
    let units =
      Z.div (Z.sub (Z.add tail error) (Zpos XH)) (Z.pow (Zpos (XO XH)) guard)
    in
    if Z.eqb units Z0
    then Some []
    else if Z.eqb (Z.div (Z.sub tail (Zpos XH)) (Z.pow (Zpos (XO XH)) guard))
              units
         then (match tails fuel0
                       (Z.div (Z.mul tail low)
                         (Z.pow (Zpos (XO XH)) precision))
                       (Z.add error growth) low growth precision guard top with
               | Some rest -> Some ((Z.sub top units) :: rest)
               | None -> None)
         else None

(** val laplace_thresholds :
    nat -> z -> z -> z -> z -> bool -> z list option **)

let laplace_thresholds fuel n d bits guard folded =
  let precision = Z.add bits guard in
  let one = Z.pow (Zpos (XO XH)) precision in
  (match exp_bounds fuel n d precision with
   | Some p ->
     let (low, high) = p in
     let tail =
       if folded
       then Z.div (Z.mul low (Z.mul (Zpos (XO XH)) one)) (Z.add one low)
       else low
     in
     let error =
       if folded
       then Z.sub
              (Z.opp
                (Z.div (Z.opp (Z.mul high (Z.mul (Zpos (XO XH)) one)))
                  (Z.add one high))) tail
       else Z.sub high low
     in
     tails fuel tail error low (Z.add (Z.sub high low) (Zpos XH)) precision
       guard (Z.sub (Z.pow (Zpos (XO XH)) bits) (Zpos XH))
   | None -> None)

type cost = { pure : q option; fails : q; prices : z list option; uses : 
              z; renyi : z list }

type limits = { most_gaussian : z; most_orders : z list; set_aside : bool }

type budget = { epsilon : q; delta : q; selection : q; plain : limits;
                aside : (q -> limits); whole : limits }

(** val walk : (z * z) list -> z -> z -> z option **)

let rec walk l n b =
  match l with
  | [] -> None
  | p :: l0 ->
    let (r, c) = p in
    let u = Z.min n (Z.div (Z.max Z0 (Z.sub b r)) c) in
    if Z.eqb (Z.sub n u) Z0
    then Some (Z.sub b (Z.mul u c))
    else walk l0 (Z.sub n u) (Z.sub b (Z.mul u c))

(** val pay_cost : z list -> z option -> cost -> z option **)

let pay_cost reserves b c =
  match b with
  | Some b0 ->
    (match c.prices with
     | Some l -> walk (combine reserves l) c.uses b0
     | None -> None)
  | None -> None

(** val pay : z list -> z option -> cost list -> z option **)

let pay reserves b charge0 =
  fold_left (pay_cost reserves) charge0 b

(** val gaussian_left : z list -> limits -> cost list list -> z option **)

let gaussian_left reserves l = function
| [] -> Some l.most_gaussian
| first :: rest ->
  pay reserves
    (if l.set_aside
     then Some l.most_gaussian
     else pay reserves (Some l.most_gaussian) first) (concat rest)

(** val order_sum : nat -> cost list -> z **)

let order_sum k all =
  fold_right (fun c t -> Z.add (nth k c.renyi Z0) t) Z0 all

(** val admits_trail : z list -> limits -> cost list list -> bool **)

let admits_trail reserves l h =
  (||) (match gaussian_left reserves l h with
        | Some _ -> true
        | None -> false)
    (existsb (fun k ->
      Z.leb (order_sum k (concat h)) (nth k l.most_orders (Zneg XH)))
      (seq O (length l.most_orders)))

(** val sum_fails : cost list -> q **)

let sum_fails all =
  fold_right (fun c t -> qred (qplus c.fails t)) { qnum = Z0; qden = XH } all

(** val sum_pure : cost list -> q option **)

let sum_pure all =
  fold_right (fun c t ->
    match c.pure with
    | Some e ->
      (match t with
       | Some t0 -> Some (qred (qplus e t0))
       | None -> None)
    | None -> None) (Some { qnum = Z0; qden = XH }) all

(** val below : q -> q -> bool **)

let below a b =
  negb (qle_bool b a)

(** val choose_limits : z list -> budget -> cost list -> limits option **)

let choose_limits reserves b first =
  match sum_pure first with
  | Some e ->
    if below e b.epsilon
    then let left =
           match pay reserves (Some b.plain.most_gaussian) first with
           | Some b0 -> b0
           | None -> Z0
         in
         if Z.ltb left (b.aside e).most_gaussian
         then Some (b.aside e)
         else Some b.plain
    else if (||) (qeq_bool e b.epsilon)
              (admits_trail reserves b.plain (first :: []))
         then Some b.plain
         else None
  | None ->
    if admits_trail reserves b.plain (first :: []) then Some b.plain else None

(** val choose : z list -> budget -> cost list -> limits * q **)

let choose reserves b first =
  if qle_bool (sum_fails first) b.selection
  then (match choose_limits reserves b first with
        | Some l -> (l, b.selection)
        | None -> (b.whole, { qnum = Z0; qden = XH }))
  else (b.whole, { qnum = Z0; qden = XH })

(** val admits : z list -> budget -> cost list list -> bool **)

let admits reserves b h = match h with
| [] -> true
| first :: _ ->
  let all = concat h in
  let (l, part) =
    if qeq_bool b.delta { qnum = Z0; qden = XH }
    then (b.plain, b.selection)
    else choose reserves b first
  in
  (&&) (qle_bool (sum_fails all) part)
    ((||)
      (match sum_pure all with
       | Some e -> qle_bool e b.epsilon
       | None -> false)
      ((&&) (negb (qeq_bool b.delta { qnum = Z0; qden = XH }))
        (admits_trail reserves l h)))

(** val mem : z -> z list -> bool **)

let mem p l =
  existsb (Z.eqb p) l

type 'c spent = { others : 'c list; groups : (z list * 'c list) list }

(** val nothing : 'a1 spent **)

let nothing =
  { others = []; groups = [] }

(** val unnamed : z list -> (z list * 'a1 list) list -> z list **)

let unnamed ps gs =
  filter (fun p -> negb (existsb (fun g -> mem p (fst g)) gs)) ps

(** val not_empty : (z list * 'a1 list) -> bool **)

let not_empty g =
  match fst g with
  | [] -> false
  | _ :: _ -> true

(** val add0 : 'a1 spent -> 'a1 -> z list option -> 'a1 spent **)

let add0 s c = function
| Some ps ->
  { others = s.others; groups =
    (filter not_empty
      (app
        (flat_map (fun g -> ((filter (fun p -> mem p ps) (fst g)),
          (app (snd g) (c :: []))) :: (((filter (fun p -> negb (mem p ps))
                                          (fst g)), (snd g)) :: [])) s.groups)
        (((unnamed ps s.groups), (app s.others (c :: []))) :: []))) }
| None ->
  { others = (app s.others (c :: [])); groups =
    (map (fun g -> ((fst g), (app (snd g) (c :: [])))) s.groups) }

(** val find : 'a1 spent -> z list option -> 'a1 list list **)

let find s = function
| Some ps ->
  app
    (map snd (filter (fun g -> existsb (fun p -> mem p ps) (fst g)) s.groups))
    (match unnamed ps s.groups with
     | [] -> []
     | _ :: _ -> s.others :: [])
| None -> app (map snd s.groups) (s.others :: [])

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

(** val start : 'a1 state **)

let start =
  { charges = []; whole0 = nothing; each = (fun _ -> nothing); answers =
    (fun _ -> None); progress = (fun _ -> None); phases = (fun _ -> Idle);
    version = Z0; trace = [] }

type 'c op =
| Take of z * z
| Look of z
| Spend of z * 'c * z list option * z option
| ReadRecords of z
| Keep of z * z
| Finish of z * z
| Crash of z
| Change of z

(** val holds : phase -> z -> bool **)

let holds ph q0 =
  match ph with
  | Idle -> false
  | Took q' -> Z.eqb q' q0
  | Fresh (q', _) -> Z.eqb q' q0
  | Under (q', _, _) -> Z.eqb q' q0
  | Holding (q', _, _) -> Z.eqb q' q0

(** val put : (z -> 'a1) -> z -> 'a1 -> z -> 'a1 **)

let put f k a i =
  if Z.eqb i k then a else f i

(** val put_n : (nat -> 'a1) -> nat -> 'a1 -> nat -> 'a1 **)

let put_n f k a i =
  if Nat.eqb i k then a else f i

(** val go : 'a1 state -> z -> phase -> 'a1 state **)

let go s p ph =
  { charges = s.charges; whole0 = s.whole0; each = s.each; answers =
    s.answers; progress = s.progress; phases = (put s.phases p ph); version =
    s.version; trace = s.trace }

(** val log : 'a1 state -> event list -> 'a1 state **)

let log s es =
  { charges = s.charges; whole0 = s.whole0; each = s.each; answers =
    s.answers; progress = s.progress; phases = s.phases; version = s.version;
    trace = (app es s.trace) }

(** val first_from :
    nat -> 'a1 charge list -> (nat -> 'a1 charge -> 'a2 option) -> 'a2 option **)

let rec first_from n l test =
  match l with
  | [] -> None
  | c :: l0 ->
    (match test n c with
     | Some a -> Some a
     | None -> first_from (S n) l0 test)

(** val same : z -> z -> 'a1 charge -> bool **)

let same q0 v c =
  (&&) (Z.eqb c.question q0) (Z.eqb c.of_version v)

(** val find_answer : 'a1 state -> z -> z -> (nat * z) option **)

let find_answer s q0 v =
  first_from O s.charges (fun n c ->
    if same q0 v c then option_map (fun x -> (n, x)) (s.answers n) else None)

(** val find_progress : 'a1 state -> z -> z -> (nat * z) option **)

let find_progress s q0 v =
  first_from O s.charges (fun n c ->
    if same q0 v c
    then (match s.answers n with
          | Some _ -> None
          | None -> option_map (fun x -> (n, x)) (s.progress n))
    else None)

(** val allowed :
    ('a1 list -> bool) -> (z -> ('a1 list -> bool) option) -> 'a1 state ->
    'a1 -> z list option -> z option -> bool **)

let allowed fits share0 s c r who =
  (&&) (forallb (fun costs -> fits (app costs (c :: []))) (find s.whole0 r))
    (match who with
     | Some w ->
       (match share0 w with
        | Some admits0 ->
          forallb (fun costs -> admits0 (app costs (c :: [])))
            (find (s.each w) r)
        | None -> true)
     | None -> true)

(** val matches : z option -> z -> z -> bool **)

let matches found kept x =
  match found with
  | Some y -> (||) (Z.eqb y kept) (Z.eqb y x)
  | None -> false

(** val step :
    ('a1 list -> bool) -> (z -> ('a1 list -> bool) option) -> bool -> z list
    -> 'a1 state -> 'a1 op -> 'a1 state **)

let step fits share0 locking procs s = function
| Take (p, q0) ->
  (match s.phases p with
   | Idle ->
     if (||) (negb (mem p procs))
          ((&&) locking (existsb (fun p' -> holds (s.phases p') q0) procs))
     then s
     else go s p (Took q0)
   | _ -> s)
| Look p ->
  (match s.phases p with
   | Took q0 ->
     (match find_answer s q0 s.version with
      | Some p0 ->
        let (n, x) = p0 in log (go s p Idle) ((DidSee (n, x)) :: [])
      | None ->
        (match find_progress s q0 s.version with
         | Some p0 -> let (n, x) = p0 in go s p (Under (q0, n, x))
         | None -> go s p (Fresh (q0, s.version))))
   | _ -> s)
| Spend (p, c, r, who) ->
  (match s.phases p with
   | Fresh (q0, v) ->
     if allowed fits share0 s c r who
     then let n = length s.charges in
          { charges =
          (app s.charges ({ question = q0; of_version = v; cost0 = c; reads =
            r; asked_by = who } :: [])); whole0 = (add0 s.whole0 c r); each =
          (match who with
           | Some w -> put s.each w (add0 (s.each w) c r)
           | None -> s.each); answers = s.answers; progress =
          (put_n s.progress n (Some Z0)); phases =
          (put s.phases p (Under (q0, n, Z0))); version = s.version; trace =
          ((DidCharge n) :: s.trace) }
     else go s p Idle
   | _ -> s)
| ReadRecords p ->
  (match s.phases p with
   | Under (q0, n, k) ->
     (match nth_error s.charges n with
      | Some c ->
        if Z.eqb c.of_version s.version
        then log (go s p (Holding (q0, n, k))) ((DidRead n) :: [])
        else log (go s p Idle) ((DidRead n) :: [])
      | None -> s)
   | _ -> s)
| Keep (p, x) ->
  (match s.phases p with
   | Holding (q0, n, k) ->
     (match s.answers n with
      | Some _ -> go s p Idle
      | None ->
        if matches (s.progress n) k x
        then { charges = s.charges; whole0 = s.whole0; each = s.each;
               answers = s.answers; progress = (put_n s.progress n (Some x));
               phases = (put s.phases p (Under (q0, n, x))); version =
               s.version; trace = ((DidSee (n, x)) :: ((DidStore (n,
               x)) :: s.trace)) }
        else go s p Idle)
   | _ -> s)
| Finish (p, x) ->
  (match s.phases p with
   | Holding (_, n, k) ->
     (match s.answers n with
      | Some y ->
        if Z.eqb y x
        then log (go s p Idle) ((DidSee (n, x)) :: [])
        else go s p Idle
      | None ->
        if matches (s.progress n) k x
        then { charges = s.charges; whole0 = s.whole0; each = s.each;
               answers = (put_n s.answers n (Some x)); progress =
               (put_n s.progress n None); phases = (put s.phases p Idle);
               version = s.version; trace = ((DidSee (n, x)) :: ((DidAnswer
               (n, x)) :: ((DidStore (n, x)) :: s.trace))) }
        else go s p Idle)
   | _ -> s)
| Crash p -> go s p Idle
| Change v ->
  { charges = s.charges; whole0 = s.whole0; each = s.each; answers =
    s.answers; progress = s.progress; phases = s.phases; version = v; trace =
    s.trace }

(** val total : nat -> (nat -> z) -> z **)

let rec total n f =
  match n with
  | O -> Z0
  | S m -> Z.add (total m f) (f m)

(** val norm1 : nat -> (nat -> z) -> z **)

let norm1 n v =
  total n (fun j -> Z.abs (v j))

type neighbours =
| AddRemove
| Replace

(** val factor_L1 : neighbours -> z **)

let factor_L1 = function
| AddRemove -> Zpos XH
| Replace -> Zpos (XO XH)

(** val factor_L2 : neighbours -> bool -> z **)

let factor_L2 nb is_signed =
  match nb with
  | AddRemove -> Zpos XH
  | Replace -> if is_signed then Zpos (XO (XO XH)) else Zpos (XO XH)

(** val share : nat -> z -> z -> z **)

let share m g r =
  if Z.leb r (Z.of_nat m) then g else Z.div (Z.mul (Z.of_nat m) g) r

(** val queried : nat -> (nat -> nat -> z) -> (nat -> z) -> nat -> z **)

let queried cells q0 c i =
  total cells (fun k -> Z.mul (c k) (q0 k i))

(** val hold : z -> z -> z **)

let hold most x =
  Z.max (Z.opp most) (Z.min x most)

(** val distance : nat -> (nat -> z) -> (nat -> z) -> z **)

let distance n c e =
  norm1 n (fun j -> Z.sub (c j) (e j))

(** val norm_score : z -> z -> z -> z -> z **)

let norm_score a b within all =
  Z.opp (Z.abs (Z.sub (Z.mul b within) (Z.mul a all)))

(** val lost : z -> z -> z -> z **)

let lost most c records =
  Z.max Z0 (Z.sub (Z.min records most) c)
