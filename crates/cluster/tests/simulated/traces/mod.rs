//! What pods and claims of members go through: the models of kubelet, StatefulSet controller and volumes are held to
//! what was recorded on real beds. Whatever a bed was seen to do the models must do as well, or no story tells what comes
//! of it; and in the stories that beds have played the models must do nothing that no bed ever did, or what they find is
//! not so. Where the two are to differ is said here, and why.

mod stories;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use etcd_operator_testkit::moves::Moves;
use etcd_operator_testkit::simulation::{NAMESPACE, Simulation};

use crate::weather::{About, Life, live, lived};
use stories::{BY_CHANCE, PLAYED, moves};

/// What was seen on real beds.
const RECORDED: &str = "tests/simulated/traces/moves.txt";
/// Lives in which much goes wrong at once.
const LIVES: [(About, u64); 2] = [(About::Usual, 3), (About::Restores, 1001)];

static SEEN: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(RECORDED);
    let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    text.lines().map(str::to_owned).collect()
});
static MADE: LazyLock<BTreeSet<String>> = LazyLock::new(|| moves(&PLAYED));
/// Lives at which somebody looked on.
static LIVED: LazyLock<Vec<(Life, Moves)>> = LazyLock::new(|| {
    let lives = LIVES.into_iter();
    lives
        .map(|(about, seed)| lived(about, seed, None, look_on))
        .collect()
});

/// Moves of a bed that the models need not make.
struct Exception {
    why: &'static str,
    is: fn(&Move<'_>) -> bool,
}

/// What only a bed does.
const ON_BEDS: [Exception; 12] = [
    Exception {
        why: "an etcd that is told to end panics or fails now and then: nothing follows from it but another exit code",
        is: |seen| {
            let ran = ["ready", "running"]
                .iter()
                .any(|how| seen.before.starts_with(how));
            let fails = |state: &str| state.starts_with("ended 1") && state.ends_with("going");
            seen.before.ends_with("going") && ran && fails(seen.after)
                || fails(seen.before) && seen.after == "absent"
        },
    },
    Exception {
        why: "a kubelet that hears late of a deletion may say once more that a container is started later: the stories tell it \
              of one that failed, and one that ended well is treated as that is",
        is: |seen| seen.before == "ended 0 again going" && seen.after == "CrashLoopBackOff again going",
    },
    Exception {
        why: "a kubelet hears late of a deletion and goes on for a moment: that of the models does so only where a container \
              has ended, as the rest is the same a moment later",
        is: |seen| {
            let begun = ["creating going", "ended 1 going", "running going"];
            let goes_on = ["running", "ready"].iter().any(|how| seen.after.starts_with(how));
            (begun.contains(&seen.before) && goes_on && seen.after.ends_with("going"))
                || (seen.before, seen.after) == ("running again going", "ended 0 again going")
        },
    },
    Exception {
        why: "a member is asked whether it is ready until it has ended, and its end and that of its pod are told in one write or in \
              two: in the models nobody asks whoever is to end, and two writes tell of one that had ended before",
        is: |seen| {
            let moves = [
                ("ready again going", "running again going"),
                ("ready going", "ended 0 going"),
                ("running going", "ended 0 going"),
            ];
            moves.contains(&(seen.before, seen.after))
        },
    },
    Exception {
        why: "a pod that is taken away without waiting for its node goes unseen, and the node of one in the models is known to be lost \
              by whoever deletes it",
        is: |seen| (seen.before, seen.after) == ("running going", "absent"),
    },
    Exception {
        why: "an etcd whose log is cut under it fails by itself; that of the models goes on until it is killed",
        is: |seen| (seen.before, seen.after) == ("ready", "ended 1"),
    },
    Exception {
        why: "whoever looks on while the API server is away meets objects as they have become since",
        is: |seen| seen.before == "absent" && !["new", "pending"].contains(&seen.after),
    },
    Exception {
        why: "the scheduler and the controller of volumes write at the same time, and in either order",
        is: |seen| {
            let orders = [
                ("pending", "bound", "placed"),
                ("pending", "bound", "absent"),
                ("new", "placed", "pending"),
            ];
            orders.contains(&(seen.before, seen.after, seen.beside))
        },
    },
    Exception {
        why: "a pod that is deleted in the very moment in which its container has failed for the first time: the stories tell it \
              of one that failed again",
        is: |seen| (seen.before, seen.after) == ("ended 1", "ended 1 going"),
    },
    Exception {
        why: "pods and claims are watched apart, and on a busy machine whoever looks on hears of a claim's end before that of the pod \
              that had it",
        is: |seen| {
            let is_claim = (seen.part, seen.before, seen.after) == ("claim", "bound going", "absent");
            is_claim && ["ready", "ready going", "ended 0 succeeded going"].contains(&seen.beside)
        },
    },
    Exception {
        why: "what is deleted in the foreground waits for what it owns, be it a pod that owns nothing and has no node",
        is: |seen| {
            let waits = ["new", "without a node"];
            let goes = seen
                .after
                .strip_suffix(" going")
                .is_some_and(|how| how == seen.before);
            let is_gone = seen.after == "absent" && seen.before.ends_with(" going");
            waits.iter().any(|how| seen.before.starts_with(how)) && (goes || is_gone)
        },
    },
    Exception {
        why: "a node of the models has every image",
        is: |seen| {
            [seen.before, seen.after, seen.beside]
                .iter()
                .any(|state| state.contains("Image"))
        },
    },
];

/// A line as its parts.
#[derive(Clone, Copy, Debug)]
struct Move<'a> {
    part: &'a str,
    before: &'a str,
    after: &'a str,
    beside: &'a str,
}

impl<'a> Move<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let (part, rest) = line.split_once(": ")?;
        let (before, rest) = rest.split_once(" -> ")?;
        let (after, rest) = rest.split_once(" (")?;
        Some(Self {
            part,
            before,
            after,
            beside: rest.strip_suffix(')')?,
        })
    }
}

/// What one side does and the other does not, though nothing excuses it.
fn missing<'a>(
    one: &'a BTreeSet<String>,
    other: &'a BTreeSet<String>,
    exceptions: &[Exception],
) -> Vec<&'a str> {
    let is_excused = |line: &str| {
        Move::read(line).is_some_and(|read| exceptions.iter().any(|exception| (exception.is)(&read)))
    };
    let only = one.difference(other).map(String::as_str);
    only.filter(|line| !is_excused(line)).collect()
}

/// Looks on at a world from now on, for as long as it is.
fn look_on(sim: &Simulation) -> Moves {
    let moves = Moves::default();
    let (watched, client) = (moves.clone(), sim.fake().client(NAMESPACE));
    tokio::spawn(async move { watched.watch(client).await });
    moves
}

#[test]
fn the_models_do_what_was_seen_on_a_real_cluster() {
    let mut made = MADE.clone();
    made.extend(moves(&BY_CHANCE));
    made.extend(LIVED.iter().flat_map(|(_, moves)| moves.lines()));
    let missing = missing(&SEEN, &made, &ON_BEDS);
    assert!(
        missing.is_empty(),
        "no model does what beds did:\n{}",
        missing.join("\n")
    );
}

#[test]
fn what_the_models_do_in_the_stories_of_a_real_cluster_was_seen_there() {
    let missing = missing(&MADE, &SEEN, &[]);
    assert!(
        missing.is_empty(),
        "no bed ever did what the models do:\n{}",
        missing.join("\n")
    );
}

#[test]
fn every_exception_was_met() {
    for exception in &ON_BEDS {
        let mut seen = SEEN.iter().filter_map(|line| Move::read(line));
        assert!(seen.any(|seen| (exception.is)(&seen)), "{}", exception.why);
    }
}

#[test]
fn a_move_is_told_without_names_times_and_numbers() {
    for line in SEEN.iter() {
        let read = Move::read(line).unwrap_or_else(|| panic!("this is no move: {line}"));
        assert!(["claim", "pod"].contains(&read.part), "{line}");
        for state in [read.before, read.after, read.beside] {
            let mut words = state.split(' ').peekable();
            while let Some(word) = words.next() {
                // An exit code says how something ended, and an address or a count would stand elsewhere.
                let is_code = words.peek().is_some_and(|next| next.parse::<u8>().is_ok());
                if word == "ended" && is_code {
                    words.next();
                } else {
                    assert!(word.chars().all(char::is_alphabetic), "{word:?} in {line}");
                }
            }
        }
    }
}

#[test]
fn whatever_one_side_lacks_is_found() {
    let lines = |all: &[&str]| -> BTreeSet<String> { all.iter().map(|line| (*line).to_owned()).collect() };
    let panics = "pod: ready going -> ended 1 failed going (bound)";
    let fails = "pod: ready going -> ended 70 failed going (bound)";
    let ends = "pod: ready going -> ended 0 succeeded going (bound)";
    let (one, other) = (lines(&[panics, fails, ends]), lines(&[ends]));
    assert_eq!(missing(&one, &other, &ON_BEDS), [fails]);
    assert_eq!(missing(&one, &other, &[]), [panics, fails]);
    assert_eq!(missing(&other, &one, &[]), Vec::<&str>::new());
}

#[test]
fn whoever_looks_on_changes_nothing() {
    for (seen, moves) in LIVED.iter() {
        assert!(!moves.lines().is_empty(), "nobody looked on");
        let unseen = live(seen.about, seen.seed, None);
        for (one, other) in seen.record.lines().zip(unseen.record.lines()) {
            assert_eq!(one, other, "seed {}", seen.seed);
        }
        assert_eq!(seen.record, unseen.record);
        assert_eq!(seen.events, unseen.events);
    }
}
