//! Several candidates, one API server, and a network that delays, loses and repeats as it likes; processes stop and go
//! on at any moment. Never do two believe that they lead.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::time::Duration;

use etcd_operator_runtime::lease::{Candidate, Decision, Record, Timing, Write};
use proptest::prelude::*;

const CANDIDATES: usize = 3;

#[derive(Clone, Debug)]
enum Call {
    Read,
    Write(Write),
}

#[derive(Clone, Debug)]
struct Request {
    from: usize,
    id: u64,
    call: Call,
}

#[derive(Clone, Debug)]
struct Answer {
    to: usize,
    id: u64,
    result: Result<Option<Record>, ()>,
}

#[derive(Debug)]
struct Process {
    candidate: Candidate,
    /// The call it waits for and when it was started.
    waits: Option<(u64, Call, Duration)>,
}

struct World {
    now: Duration,
    stored: Option<Record>,
    versions: u64,
    compare_versions: bool,
    processes: Vec<Process>,
    requests: Vec<Request>,
    answers: Vec<Answer>,
    ids: u64,
    names: u64,
    takeovers: usize,
}

/// A process runs, a message moves, or time passes: whoever is not named stands still meanwhile.
#[derive(Clone, Debug)]
enum Op {
    Pass(u64),
    Run(usize),
    Arrive {
        pick: usize,
        again: bool,
    },
    Answer(usize),
    LoseRequest(usize),
    LoseAnswer(usize),
    Retire(usize),
    Restart(usize),
    /// Somebody deletes the lease.
    Delete,
    /// Somebody empties the name of its holder.
    Clear,
    /// The network and this process behave for a while, the process looking up this often, so that something happens
    /// at all.
    Calm {
        who: usize,
        every: u64,
        rounds: u64,
    },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (1_u64..4000).prop_map(Op::Pass),
        6 => (0..CANDIDATES).prop_map(Op::Run),
        6 => (any::<usize>(), prop::bool::weighted(0.2)).prop_map(|(pick, again)| Op::Arrive { pick, again }),
        6 => any::<usize>().prop_map(Op::Answer),
        1 => any::<usize>().prop_map(Op::LoseRequest),
        1 => any::<usize>().prop_map(Op::LoseAnswer),
        1 => (0..CANDIDATES).prop_map(Op::Retire),
        1 => (0..CANDIDATES).prop_map(Op::Restart),
        1 => Just(Op::Delete),
        1 => Just(Op::Clear),
        4 => (0..CANDIDATES, 50_u64..1000, 1_u64..15_000)
            .prop_map(|(who, every, long)| Op::Calm { who, every, rounds: long / every + 1 }),
    ]
}

impl World {
    fn new(compare_versions: bool) -> Self {
        let mut world = Self {
            now: Duration::from_secs(50),
            stored: None,
            versions: 0,
            compare_versions,
            processes: Vec::new(),
            requests: Vec::new(),
            answers: Vec::new(),
            ids: 0,
            names: 0,
            takeovers: 0,
        };
        for _ in 0..CANDIDATES {
            let process = world.fresh();
            world.processes.push(process);
        }
        world
    }

    fn fresh(&mut self) -> Process {
        self.names += 1;
        Process {
            candidate: Candidate::new(format!("p{}", self.names), Timing::default()),
            waits: None,
        }
    }

    fn leaders(&self) -> Vec<&str> {
        let leading = self.processes.iter().filter(|p| p.candidate.leads(self.now));
        leading.map(|p| p.candidate.name()).collect()
    }

    fn send(&mut self, from: usize, call: Call) {
        self.ids += 1;
        self.processes[from].waits = Some((self.ids, call.clone(), self.now));
        self.requests.push(Request {
            from,
            id: self.ids,
            call,
        });
    }

    fn run(&mut self, who: usize) {
        if let Some((_, _, started)) = self.processes[who].waits {
            // A call is given up after three seconds; its request may still arrive later.
            if self.now < started + Duration::from_secs(3) {
                return;
            }
            self.processes[who].waits = None;
            self.processes[who].candidate.failed();
        }
        match self.processes[who].candidate.decide(self.now) {
            Decision::Read => self.send(who, Call::Read),
            Decision::Write(write) => self.send(who, Call::Write(write)),
            Decision::Wait(_) => {}
        }
    }

    fn serve(&mut self, call: &Call) -> Result<Option<Record>, ()> {
        let Call::Write(write) = call else {
            return Ok(self.stored.clone());
        };
        let version = self.stored.as_ref().map(|r| r.version.clone());
        if self.compare_versions && version != write.replaces {
            return Err(());
        }
        self.versions += 1;
        let before = self.stored.as_ref().and_then(|r| r.holder.clone());
        if before.is_some() && write.holder.is_some() && before != write.holder {
            self.takeovers += 1;
        }
        self.stored = Some(Record {
            version: self.versions.to_string(),
            holder: write.holder.clone(),
            released: write.holder.is_none(),
            duration: Timing::default().duration,
            transitions: write.transitions,
        });
        Ok(self.stored.clone())
    }

    fn arrive(&mut self, index: usize, again: bool) {
        let request = if again {
            self.requests[index].clone()
        } else {
            self.requests.swap_remove(index)
        };
        let result = self.serve(&request.call);
        self.answers.push(Answer {
            to: request.from,
            id: request.id,
            result,
        });
    }

    fn answer(&mut self, index: usize) {
        let answer = self.answers.swap_remove(index);
        let now = self.now;
        let process = &mut self.processes[answer.to];
        let Some((id, call, started)) = process.waits.take() else {
            return;
        };
        if id != answer.id {
            process.waits = Some((id, call, started));
            return;
        }
        match (call, answer.result) {
            (Call::Read, Ok(record)) => process.candidate.read(record, now),
            (Call::Write(_), Ok(Some(record))) => process.candidate.wrote(record, started, now),
            _ => process.candidate.failed(),
        }
    }

    fn calm(&mut self, who: usize, every: u64, rounds: u64) {
        for _ in 0..rounds {
            loop {
                self.run(who);
                let before = self.answers.len();
                while let Some(index) = self.requests.iter().position(|r| r.from == who) {
                    self.arrive(index, false);
                }
                if self.answers.len() == before {
                    break;
                }
                while let Some(index) = self.answers.iter().position(|a| a.to == who) {
                    self.answer(index);
                }
            }
            self.now += Duration::from_millis(every);
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Pass(ms) => self.now += Duration::from_millis(ms),
            Op::Run(who) => self.run(who),
            Op::Calm { who, every, rounds } => self.calm(who, every, rounds),
            Op::Arrive { pick, again } if !self.requests.is_empty() => {
                self.arrive(pick % self.requests.len(), again);
            }
            Op::Answer(pick) if !self.answers.is_empty() => self.answer(pick % self.answers.len()),
            Op::LoseRequest(pick) if !self.requests.is_empty() => {
                self.requests.swap_remove(pick % self.requests.len());
            }
            Op::LoseAnswer(pick) if !self.answers.is_empty() => {
                self.answers.swap_remove(pick % self.answers.len());
            }
            Op::Retire(who) => {
                if let Some(release) = self.processes[who].candidate.retire(self.now) {
                    self.send(who, Call::Write(release));
                }
            }
            Op::Restart(who) => {
                let process = self.fresh();
                self.processes[who] = process;
                // Answers to the old process reach nobody.
                self.answers.retain(|a| a.to != who);
            }
            Op::Delete => self.stored = None,
            Op::Clear => {
                self.versions += 1;
                if let Some(stored) = &mut self.stored {
                    stored.version = self.versions.to_string();
                    (stored.holder, stored.released) = (None, false);
                }
            }
            Op::Arrive { .. } | Op::Answer(_) | Op::LoseRequest(_) | Op::LoseAnswer(_) => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn there_are_never_two_leaders(ops in prop::collection::vec(op(), 1..300)) {
        let mut world = World::new(true);
        for op in &ops {
            world.apply(op);
            prop_assert!(world.leaders().len() <= 1, "{:?} after {op:?}", world.leaders());
        }
    }

    #[test]
    fn once_the_network_behaves_somebody_leads_within_fifteen_seconds(
        ops in prop::collection::vec(op(), 1..100), who in 0..CANDIDATES,
    ) {
        let mut world = World::new(true);
        for op in &ops {
            world.apply(op);
        }
        world.requests.clear();
        world.answers.clear();
        let fresh = world.fresh();
        world.processes[who] = fresh;
        // The others have crashed; this one runs ten times a second.
        let crashed = world.now;
        while !world.processes[who].candidate.leads(world.now) {
            world.run(who);
            while !world.requests.is_empty() {
                world.arrive(0, false);
            }
            while !world.answers.is_empty() {
                world.answer(0);
            }
            world.now += Duration::from_millis(100);
            prop_assert!(world.now.checked_sub(crashed).unwrap() <= Duration::from_secs(15));
        }
    }
}

#[test]
fn a_stopped_leader_is_followed_and_believes_no_more() {
    let mut world = World::new(true);
    world.calm(0, 100, 80);
    assert_eq!(world.leaders(), ["p1"]);
    world.calm(1, 100, 120);
    assert_eq!(world.leaders(), ["p2"]);
    assert_eq!(world.takeovers, 1);
}

#[test]
fn a_server_that_did_not_compare_versions_would_let_two_lead() {
    let mut world = World::new(false);
    // Both read that there is no lease, then both write.
    for _ in ["read", "write"] {
        for who in [0, 1] {
            world.run(who);
            world.arrive(0, false);
        }
        world.answer(0);
        world.answer(0);
    }
    // Each goes on to renew until it doubts no more.
    for _ in 0..80 {
        world.now += Duration::from_millis(100);
        for who in [0, 1] {
            world.run(who);
            while !world.requests.is_empty() {
                world.arrive(0, false);
                world.answer(0);
            }
        }
    }
    assert_eq!(
        world.leaders().len(),
        2,
        "this model can tell a broken election from a sound one"
    );
}
