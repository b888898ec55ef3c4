//! Many seeds: each must keep every promise, and together they must have been everywhere. What a run looks for and how
//! many seeds it takes is told by variables, so that the same test is a quick look and a long search:
//! `SIMULATION_SEEDS` how many, `SIMULATION_FROM` the first, `SIMULATION_SEED` a single one with its record,
//! `SIMULATION_FIRST` whether to end at the first that breaks a promise, `SIMULATION_EVERYWHERE` that they must have been
//! everywhere and how many of them must count, `SIMULATION_EVERY_CALL` whether restores die at calls as well that change nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::coverage;
use crate::weather::{About, EVENTS, FAULTS, Life, live};

/// How many seeds a look takes.
const LOOK: u64 = 4;
/// How many seeds with restores.
const LOOK_AT_RESTORES: u64 = 4;

#[expect(
    clippy::disallowed_methods,
    reason = "a test takes no flags, and what it looks for comes from outside"
)]
pub fn variable(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is no number: {text}")),
    )
}

/// How long processors were busy with this process; 0 where nobody tells.
fn cpu_seconds() -> f64 {
    // In ticks of a hundredth, after the name of the program, which may hold anything.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks = fields
        .skip(11)
        .take(2)
        .filter_map(|ticks| ticks.parse::<u32>().ok());
    f64::from(ticks.sum::<u32>()) / 100.0
}

/// What many seeds came to.
#[derive(Debug, Default)]
struct Sum {
    seeds: u64,
    counted: u64,
    events: u64,
    writes: u64,
    faults: u64,
    counts: BTreeMap<String, u64>,
    /// What tells these lives from others: the same as long as nothing that happens in any of them is another.
    mark: u64,
    broken: Vec<Life>,
}

impl Sum {
    fn add(&mut self, life: Life) {
        self.seeds += 1;
        self.counted += u64::from(life.events >= EVENTS && life.injected.len() >= FAULTS);
        self.events += life.events;
        self.writes += life.writes;
        self.faults += u64::try_from(life.injected.len()).unwrap_or(0);
        let mut mark = DefaultHasher::new();
        (life.seed, &life.record).hash(&mut mark);
        self.mark = self.mark.wrapping_add(mark.finish());
        for (what, count) in &life.counts {
            *self.counts.entry(what.clone()).or_default() += count;
        }
        if !life.violations.is_empty() {
            println!("seed {}: {}", life.seed, life.violations[0]);
            self.broken.push(life);
        }
    }

    fn print(&self, seconds: f64) {
        let steps = self.counts.iter().filter(|(what, _)| what.starts_with("step "));
        let steps: u64 = steps.map(|(_, count)| count).sum();
        println!(
            "{} seeds in {seconds:.1} s ({:.1} CPU s), {} counted; {} events, {} faults, {steps} steps, {} acknowledged \
             writes; {} broken; mark {:016x}",
            self.seeds,
            cpu_seconds(),
            self.counted,
            self.events,
            self.faults,
            self.writes,
            self.broken.len(),
            self.mark,
        );
        for (what, count) in &self.counts {
            println!("{count:>9} {what}");
        }
    }
}

/// The fewest faults of a seed that still break the same promise.
fn shorten(life: &Life) -> Life {
    let wanted = life.broken();
    let mut best = life.clone();
    let mut faults: Vec<u32> = life.injected.iter().map(|(number, _)| *number).collect();
    let mut index = 0;
    while index < faults.len() {
        let mut fewer = faults.clone();
        fewer.remove(index);
        let only: BTreeSet<u32> = fewer.iter().copied().collect();
        let shorter = live(life.about, life.seed, Some(&only));
        if shorter.broken().is_disjoint(&wanted) {
            index += 1;
        } else {
            faults = fewer;
            best = shorter;
        }
    }
    best
}

fn tell(life: &Life) -> String {
    let faults: Vec<String> = life
        .injected
        .iter()
        .map(|(number, fault)| format!("{number}: {fault}"))
        .collect();
    let violations: Vec<String> = life.violations.iter().map(ToString::to_string).collect();
    format!(
        "seed {} breaks promises:\n{}\nwith {} faults:\n{}\nwhat happened:\n{}\nits status in the end:\n{}\n",
        life.seed,
        violations.join("\n"),
        faults.len(),
        faults.join("\n"),
        life.record,
        life.status,
    )
}

fn search(about: About, from: u64, seeds: u64, ends_at_first: bool) -> Sum {
    let (next, sum) = (AtomicU64::new(from), Mutex::new(Sum::default()));
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let is_over = ends_at_first && !sum.lock().unwrap().broken.is_empty();
                    if is_over || seed >= from + seeds {
                        return;
                    }
                    let life = live(about, seed, None);
                    sum.lock().unwrap().add(life);
                }
            });
        }
    });
    sum.into_inner().unwrap()
}

/// A look or a long search, or one life with all that happened in it.
fn look(about: About, seeds: u64) {
    if let Some(seed) = variable("SIMULATION_SEED") {
        let life = live(about, seed, None);
        println!("{}", tell(&life));
        assert!(
            life.violations.is_empty(),
            "seed {seed} breaks {:?}",
            life.broken()
        );
        return;
    }
    let start = Instant::now();
    let from = variable("SIMULATION_FROM").unwrap_or(0);
    let seeds = variable("SIMULATION_SEEDS").unwrap_or(seeds);
    let ends_at_first = variable("SIMULATION_FIRST").is_some();
    let sum = search(about, from, seeds, ends_at_first);
    sum.print(start.elapsed().as_secs_f64());
    if let Some(first) = sum.broken.iter().min_by_key(|life| life.record.len()) {
        // Whoever wants no more than one is in a hurry.
        let told = if ends_at_first {
            first.clone()
        } else {
            shorten(first)
        };
        panic!("{}", tell(&told));
    }
    if let Some(wanted) = variable("SIMULATION_EVERYWHERE") {
        let missing = coverage::missing(about, &sum.counts);
        assert!(missing.is_empty(), "not often enough:\n{}", missing.join("\n"));
        // About restores nothing more goes wrong where too little has happened.
        let wanted = match about {
            About::Usual => wanted,
            About::Restores => wanted * 9 / 10,
        };
        assert!(
            sum.counted >= wanted,
            "{} seeds count, and {wanted} should",
            sum.counted
        );
    }
}

#[test]
fn no_seed_breaks_a_promise() {
    look(About::Usual, LOOK);
}

#[test]
fn no_seed_with_restores_breaks_a_promise() {
    look(About::Restores, LOOK_AT_RESTORES);
}

#[test]
fn a_seed_replays_byte_for_byte() {
    for (about, seed) in [(About::Usual, 3), (About::Usual, 17), (About::Restores, 1001)] {
        let (first, second) = (live(about, seed, None), live(about, seed, None));
        assert!(first.record.lines().count() > 30, "{}", first.record);
        for (one, other) in first.record.lines().zip(second.record.lines()) {
            assert_eq!(one, other, "seed {seed}");
        }
        assert_eq!(first.events, second.events);
    }
}
