//! How far the builds of one call are, told so that a person can follow: what, how long, how much is left. It only
//! watches; what is built when is decided elsewhere.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::sets::ComponentSet;

/// The share of a build that is compiling packages; the rest is linking, of which Go says nothing.
const COMPILING: f64 = 0.85;

/// The builds of one call.
#[derive(Debug)]
pub(super) struct Progress {
    lanes: usize,
    rows: Mutex<Vec<Row>>,
}

#[derive(Debug)]
struct Row {
    name: &'static str,
    cold: Duration,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Waiting,
    Building {
        since: Instant,
        /// Packages that must be compiled, and all there are; unknown while they are being fetched.
        packages: Option<Packages>,
        compiled: usize,
    },
    Done,
}

/// How much of a build the caches of Go leave to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packages {
    pub(super) to_compile: usize,
    pub(super) all: usize,
}

impl Progress {
    pub(super) fn new(sets: &[&'static ComponentSet], lanes: usize) -> Self {
        let row = |set: &&'static ComponentSet| Row {
            name: set.name,
            cold: Duration::from_secs(set.cold_seconds),
            state: State::Waiting,
        };
        Self {
            lanes: lanes.max(1),
            rows: Mutex::new(sets.iter().map(row).collect()),
        }
    }

    pub(super) fn begin(&self, set: &ComponentSet, what: &str) {
        self.change(set, |state| {
            *state = State::Building {
                since: Instant::now(),
                packages: None,
                compiled: 0,
            };
        });
        self.tell(set, &format!("building {what}"));
    }

    pub(super) fn counted(&self, set: &ComponentSet, counted: Packages) {
        self.change(set, |state| {
            if let State::Building { packages, .. } = state {
                *packages = Some(counted);
            }
        });
    }

    pub(super) fn compiled(&self, set: &ComponentSet) {
        self.change(set, |state| {
            if let State::Building { compiled, .. } = state {
                *compiled += 1;
            }
        });
    }

    /// Says where the build of `set` is, for somebody who has waited a while.
    pub(super) fn beat(&self, set: &ComponentSet) {
        let line = self
            .rows()
            .iter()
            .find(|row| row.name == set.name)
            .and_then(|row| match row.state {
                State::Building {
                    since,
                    packages,
                    compiled,
                } => Some(at(since.elapsed(), packages, compiled)),
                _ => None,
            });
        if let Some(line) = line {
            self.tell(set, &line);
        }
    }

    pub(super) fn done(&self, set: &ComponentSet) {
        let mut took = Duration::ZERO;
        self.change(set, |state| {
            if let State::Building { since, .. } = state {
                took = since.elapsed();
            }
            *state = State::Done;
        });
        self.tell(set, &format!("built in {} s", took.as_secs()));
    }

    fn tell(&self, set: &ComponentSet, what: &str) {
        let rows = self.rows();
        let place = rows.iter().position(|row| row.name == set.name).unwrap_or(0) + 1;
        let rest = match left(&rows, self.lanes) {
            left if left.is_zero() => String::new(),
            left => format!("; {} left in all", roughly(left)),
        };
        say(&format!("[{place}/{}] {}: {what}{rest}", rows.len(), set.name));
    }

    fn change(&self, set: &ComponentSet, change: impl FnOnce(&mut State)) {
        if let Some(row) = self.rows().iter_mut().find(|row| row.name == set.name) {
            change(&mut row.state);
        }
    }

    fn rows(&self) -> MutexGuard<'_, Vec<Row>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One line for people, told apart from what the programs that are run say themselves.
pub(super) fn say(line: &str) {
    eprintln!("components: {line}");
}

fn at(elapsed: Duration, packages: Option<Packages>, compiled: usize) -> String {
    let seconds = elapsed.as_secs();
    match packages {
        None => format!("{seconds} s, fetching sources"),
        Some(packages) if compiled >= packages.to_compile => format!("{seconds} s, linking"),
        Some(packages) => format!(
            "{seconds} s, {compiled} of {} packages compiled",
            packages.to_compile
        ),
    }
}

/// What is left of all rows, at the pace of the machine the table was measured on.
fn left(rows: &[Row], lanes: usize) -> Duration {
    let all: Duration = rows
        .iter()
        .map(|row| match row.state {
            State::Done => Duration::ZERO,
            State::Waiting | State::Building { packages: None, .. } => row.cold,
            State::Building {
                packages: Some(packages),
                compiled,
                ..
            } => row.cold.mul_f64(
                share(packages.to_compile.saturating_sub(compiled), packages.all) * COMPILING
                    + (1.0 - COMPILING),
            ),
        })
        .sum();
    all / u32::try_from(lanes).unwrap_or(1)
}

fn share(part: usize, whole: usize) -> f64 {
    let number = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
    if whole == 0 {
        0.0
    } else {
        number(part) / number(whole)
    }
}

/// Estimates deserve no seconds.
fn roughly(left: Duration) -> String {
    match left.as_secs() {
        seconds if seconds < 60 => String::from("less than a minute"),
        seconds => format!("about {} min", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &'static str, cold: u64, state: State) -> Row {
        Row {
            name,
            cold: Duration::from_secs(cold),
            state,
        }
    }

    fn building(to_compile: usize, all: usize, compiled: usize) -> State {
        State::Building {
            since: Instant::now(),
            packages: Some(Packages { to_compile, all }),
            compiled,
        }
    }

    #[test]
    fn what_is_left_shrinks_with_every_package_and_never_counts_what_is_done() {
        let start = left(
            &[row("a", 100, building(500, 500, 0)), row("b", 50, State::Waiting)],
            1,
        );
        let half = left(
            &[
                row("a", 100, building(500, 500, 250)),
                row("b", 50, State::Waiting),
            ],
            1,
        );
        let cached = left(
            &[row("a", 100, building(0, 500, 0)), row("b", 50, State::Waiting)],
            1,
        );
        assert_eq!(start.as_secs(), 150);
        assert_eq!(half.as_secs(), 107);
        assert_eq!(cached.as_secs(), 65);
        assert_eq!(left(&[row("a", 100, State::Done)], 1), Duration::ZERO);
    }

    #[test]
    fn two_builds_at_a_time_take_half_as_long() {
        let rows = [row("a", 100, State::Waiting), row("b", 100, State::Waiting)];
        assert_eq!(left(&rows, 2).as_secs(), 100);
    }

    #[test]
    fn a_build_says_whether_it_fetches_compiles_or_links() {
        let packages = Some(Packages {
            to_compile: 10,
            all: 40,
        });
        let seconds = Duration::from_secs(7);
        assert_eq!(at(seconds, None, 0), "7 s, fetching sources");
        assert_eq!(at(seconds, packages, 3), "7 s, 3 of 10 packages compiled");
        assert_eq!(at(seconds, packages, 10), "7 s, linking");
        assert_eq!(roughly(Duration::from_secs(59)), "less than a minute");
        assert_eq!(roughly(Duration::from_secs(61)), "about 2 min");
    }
}
