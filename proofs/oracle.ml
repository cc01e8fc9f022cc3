(* Reads one question per line and answers it by the extracted definitions; whole numbers are in binary. *)
open Model

let rec int_of_nat n = match n with O -> 0 | S n -> 1 + int_of_nat n
let rec nat_of_int n = if n <= 0 then O else S (nat_of_int (n - 1))

let z_of_string s =
  let negative = s.[0] = '-' in
  let start = if negative then 1 else 0 in
  let rec build i p = if i >= String.length s then p else build (i + 1) (if s.[i] = '1' then XI p else XO p) in
  let rec skip i = if i < String.length s && s.[i] = '0' then skip (i + 1) else i in
  let first = skip start in
  if first >= String.length s then Z0
  else let p = build (first + 1) XH in if negative then Zneg p else Zpos p

let string_of_z z =
  let rec digits p rest = match p with XH -> "1" :: rest | XO p -> digits p ("0" :: rest) | XI p -> digits p ("1" :: rest) in
  match z with Z0 -> "0" | Zpos p -> String.concat "" (digits p []) | Zneg p -> "-" ^ String.concat "" (digits p [])

let z_of_int n = let rec pos n = if n = 1 then XH else if n land 1 = 1 then XI (pos (n lsr 1)) else XO (pos (n lsr 1)) in
  if n = 0 then Z0 else if n > 0 then Zpos (pos n) else Zneg (pos (- n))

let words s = List.filter (fun w -> w <> "") (String.split_on_char ' ' s)
let numbers s = List.map z_of_string (words s)
let fraction s = match String.split_on_char '/' s with
  | [n; d] -> { qnum = z_of_string n; qden = (match z_of_string d with Zpos p -> p | _ -> failwith "denominator") }
  | _ -> failwith ("no fraction: " ^ s)
let option read s = if s = "-" then None else Some (read s)
let print_all zs = String.concat " " (List.map string_of_z zs)

let fuel = nat_of_int 40
let terms = nat_of_int 20000
let word_bits = z_of_int 64

(* Thresholds by the width of the words that they are compared with. *)
let tables : (string, z list) Hashtbl.t = Hashtbl.create 8
let table b = try Hashtbl.find tables (string_of_z b) with Not_found -> failwith ("no table of width " ^ string_of_z b)
let floor n d b = match loss_floor fuel terms (z_of_int 32) n d b with Some f -> f | None -> failwith "floor"

let reserves = ref []
let budget = ref None
let costs : (string, cost) Hashtbl.t = Hashtbl.create 64
let law = ref (Z0, Z0, Z0, Z0, Z0)

let limits gaussian orders aside = { most_gaussian = z_of_string gaussian; most_orders = numbers orders; set_aside = aside }

(* The door: a state that operations change, one by one. *)
let door = ref start
let most = ref Z0
let persons : (string * z) list ref = ref []
let locking = ref true
let processes = List.map z_of_int [1; 2; 3; 4; 5]
let sum = List.fold_left Z.add Z0
let within limit costs = Z.leb (sum costs) limit
let share_of who = Option.map within (List.assoc_opt (string_of_z who) !persons)

let act op = door := step (within !most) share_of !locking processes !door op; "ok"

let phase_of p = match !door.phases p with
  | Idle -> "idle" | Took _ -> "took" | Fresh (_, _) -> "fresh"
  | Under (_, n, k) -> Printf.sprintf "under %d %s" (int_of_nat n) (string_of_z k)
  | Holding (_, n, k) -> Printf.sprintf "holding %d %s" (int_of_nat n) (string_of_z k)

let show_all () =
  let show found = match found with None -> "-" | Some x -> string_of_z x in
  String.concat ";" (List.mapi (fun i c -> let n = nat_of_int i in
    Printf.sprintf "%s %s %s %s %s" (string_of_z c.question) (string_of_z c.of_version) (string_of_z c.cost0)
      (show (!door.answers n)) (show (!door.progress n))) !door.charges)

let listed values = let a = Array.of_list values in fun n -> let i = int_of_nat n in if i < Array.length a then a.(i) else Z0

let answer line = match String.split_on_char ',' line with
  | ["exp"; n; d; bits] ->
      (match exp_bounds terms (z_of_string n) (z_of_string d) (z_of_string bits) with
       | Some (low, high) -> print_all [low; high] | None -> "none")
  | ["floor"; n; d; bits] -> string_of_z (floor (z_of_string n) (z_of_string d) (z_of_string bits))
  | ["laplace"; n; d; bits; guard; folded] ->
      (match laplace_thresholds terms (z_of_string n) (z_of_string d) (z_of_string bits) (z_of_string guard) (folded = "1") with
       | Some l -> "some " ^ print_all l | None -> "none")
  | ["gaussian"; n; d; bits; guard; folded] ->
      (match gaussian_thresholds terms (z_of_string n) (z_of_string d) (z_of_string bits) (z_of_string guard) (folded = "1") with
       | Some l -> "some " ^ print_all l | None -> "none")
  | ["table"; bits; values] -> Hashtbl.replace tables bits (numbers values); "ok"
  | ["narrow"; given] ->
      let rec draw given out = match given with
        | [] -> List.rev out
        | _ -> (match run (narrow word_bits table fuel) given with
                | Some (x, rest) -> draw rest (x :: out) | None -> List.rev out) in
      print_all (draw (numbers given) [])
  | ["law"; power; sn; sd; shift; bits] ->
      law := (z_of_string power, z_of_string sn, z_of_string sd, z_of_string shift, z_of_string bits); "ok"
  | ["wide"; given] ->
      let (power, sn, sd, shift, bits) = !law in
      let one = trial word_bits table floor (pair_loss power sn sd shift) shift bits fuel in
      let rec draw given out = match given with
        | [] -> List.rev out
        | _ -> (match run (wide one fuel) given with
                | Some (x, rest) -> draw rest (x :: out) | None -> List.rev out) in
      print_all (draw (numbers given) [])
  | ["trial"; given] ->
      let (power, sn, sd, shift, bits) = !law in
      let one = trial word_bits table floor (pair_loss power sn sd shift) shift bits fuel in
      (match run one (numbers given) with
       | Some (Some x, rest) -> string_of_z x ^ " " ^ string_of_int (List.length rest)
       | Some (None, rest) -> "again " ^ string_of_int (List.length rest)
       | None -> "more")
  | ["keep"; n; d; bits; v] ->
      let n = z_of_string n and d = z_of_string d in
      (match keep (floor n d) n d (z_of_string bits) (z_of_string v) with
       | Some true -> "kept" | Some false -> "lost" | None -> "open")
  | ["coin"; n; d; given] ->
      (match run (coin word_bits fuel (z_of_string n) (z_of_string d)) (numbers given) with
       | Some (true, _) -> "heads" | Some (false, _) -> "tails" | None -> "more")
  | ["choose"; bits; v; lows; highs] ->
      let bounds = List.combine (numbers lows) (numbers highs) in
      (match choose_index (fun _ -> bounds) (z_of_string bits) (z_of_string v) with
       | Some i -> string_of_int (int_of_nat i) | None -> "more")
  | ["reserves"; given] -> reserves := numbers given; "ok"
  | ["cost"; name; pure; fails; prices; uses; renyi] ->
      Hashtbl.replace costs name { pure = option fraction pure; fails = fraction fails; prices = option numbers prices;
        uses = z_of_string uses; renyi = numbers renyi }; "ok"
  | ["budget"; epsilon; delta; selection; gaussian; orders; whole; whole_orders] ->
      budget := Some (fraction epsilon, fraction delta, fraction selection, limits gaussian orders false,
        limits whole whole_orders false); "ok"
  | ["admits"; gaussian; orders; history] ->
      (match !budget with
       | None -> failwith "no budget"
       | Some (epsilon, delta, selection, plain, whole) ->
           let aside = limits gaussian orders true in
           let charges = List.map (fun charge -> List.map (Hashtbl.find costs) (words charge)) (String.split_on_char ';' history) in
           let rule = { epsilon; delta; selection; plain; aside = (fun _ -> aside); whole } in
           if admits !reserves rule charges then "yes" else "no")
  | "door" :: lock :: limit :: shares ->
      locking := lock = "1"; most := z_of_string limit; door := start;
      persons := List.map (fun each -> match words each with
        | [who; limit] -> (who, z_of_string limit) | _ -> failwith "share") shares; "ok"
  | ["take"; p; q] -> act (Take (z_of_string p, z_of_string q))
  | ["look"; p] -> act (Look (z_of_string p))
  | ["spend"; p; cost; reads; who] ->
      act (Spend (z_of_string p, z_of_string cost, option numbers reads, option z_of_string who))
  | ["read"; p] -> act (ReadRecords (z_of_string p))
  | ["keep"; p; x] -> act (Keep (z_of_string p, z_of_string x))
  | ["finish"; p; x] -> act (Finish (z_of_string p, z_of_string x))
  | ["crash"; p] -> act (Crash (z_of_string p))
  | ["change"; v] -> act (Change (z_of_string v))
  | ["phase"; p] -> phase_of (z_of_string p)
  | ["charges"] -> "all " ^ show_all ()
  | ["share"; m; g; r] -> string_of_z (share (nat_of_int (int_of_string ("0b" ^ m))) (z_of_string g) (z_of_string r))
  | ["hold"; m; x] -> string_of_z (hold (z_of_string m) (z_of_string x))
  | ["norm score"; a; b; within; all] ->
      string_of_z (norm_score (z_of_string a) (z_of_string b) (z_of_string within) (z_of_string all))
  | ["distance"; counts; estimate] ->
      let counts = numbers counts in
      string_of_z (distance (nat_of_int (List.length counts)) (listed counts) (listed (numbers estimate)))
  | ["queried"; counts; weights; i] ->
      (* weights of one query, by cell *)
      let counts = numbers counts and weights = numbers weights in
      string_of_z (queried (nat_of_int (List.length counts)) (fun k _ -> listed weights k) (listed counts) (nat_of_int (int_of_string ("0b" ^ i))))
  | ["factor"; norm; relation; signed] ->
      let nb = if relation = "replace" then Replace else AddRemove in
      string_of_z (if norm = "L1" then factor_L1 nb else factor_L2 nb (signed = "1"))
  | _ -> failwith ("unknown question: " ^ line)

let () =
  try while true do print_endline (answer (input_line stdin)); flush stdout done
  with End_of_file -> ()
