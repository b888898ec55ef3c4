//! Property tests of leader election: several candidates, one API server, and a network that delays, loses and duplicates
//! messages. Processes stop and resume at any time. There must never be two leaders.
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
    /// ID, content and start time of the unanswered call.
    pending_call: Option<(u64, Call, Duration)>,
}

struct Simulation {
    now: Duration,
    stored: Option<Record>,
    last_version: u64,
    compare_versions: bool,
    processes: Vec<Process>,
    requests: Vec<Request>,
    answers: Vec<Answer>,
    last_call_id: u64,
    last_process: u64,
    takeovers: usize,
}

/// One event of the simulation. Processes and messages that it does not name do not progress.
#[derive(Clone, Debug)]
enum Op {
    Advance(u64),
    Run(usize),
    DeliverRequest {
        pick: usize,
        duplicate: bool,
    },
    DeliverAnswer(usize),
    LoseRequest(usize),
    LoseAnswer(usize),
    Release(usize),
    Restart(usize),
    /// A user deletes the Lease.
    Delete,
    /// A user clears the holder of the Lease.
    ClearHolder,
    /// Runs one process with an intact network for `rounds` rounds of `every` milliseconds, so that random sequences make
    /// progress.
    RunUndisturbed {
        process: usize,
        every: u64,
        rounds: u64,
    },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (1_u64..4000).prop_map(Op::Advance),
        6 => (0..CANDIDATES).prop_map(Op::Run),
        6 => (any::<usize>(), prop::bool::weighted(0.2)).prop_map(|(pick, duplicate)| Op::DeliverRequest { pick, duplicate }),
        6 => any::<usize>().prop_map(Op::DeliverAnswer),
        1 => any::<usize>().prop_map(Op::LoseRequest),
        1 => any::<usize>().prop_map(Op::LoseAnswer),
        1 => (0..CANDIDATES).prop_map(Op::Release),
        1 => (0..CANDIDATES).prop_map(Op::Restart),
        1 => Just(Op::Delete),
        1 => Just(Op::ClearHolder),
        4 => (0..CANDIDATES, 50_u64..1000, 1_u64..15_000)
            .prop_map(|(process, every, long)| Op::RunUndisturbed { process, every, rounds: long / every + 1 }),
    ]
}

impl Simulation {
    fn new(compare_versions: bool) -> Self {
        let mut simulation = Self {
            now: Duration::from_secs(50),
            stored: None,
            last_version: 0,
            compare_versions,
            processes: Vec::new(),
            requests: Vec::new(),
            answers: Vec::new(),
            last_call_id: 0,
            last_process: 0,
            takeovers: 0,
        };
        for _ in 0..CANDIDATES {
            let process = simulation.new_process();
            simulation.processes.push(process);
        }
        simulation
    }

    fn new_process(&mut self) -> Process {
        self.last_process += 1;
        Process {
            candidate: Candidate::new(format!("p{}", self.last_process), Timing::default()),
            pending_call: None,
        }
    }

    fn leaders(&self) -> Vec<&str> {
        let leading = self.processes.iter().filter(|p| p.candidate.is_leader(self.now));
        leading.map(|p| p.candidate.identity()).collect()
    }

    fn send(&mut self, from: usize, call: Call) {
        self.last_call_id += 1;
        self.processes[from].pending_call = Some((self.last_call_id, call.clone(), self.now));
        self.requests.push(Request {
            from,
            id: self.last_call_id,
            call,
        });
    }

    fn run(&mut self, process: usize) {
        if let Some((_, _, started)) = self.processes[process].pending_call {
            // A call times out after three seconds; its request may still arrive later.
            if self.now < started + Duration::from_secs(3) {
                return;
            }
            self.processes[process].pending_call = None;
            self.processes[process].candidate.on_failure();
        }
        match self.processes[process].candidate.decide(self.now) {
            Decision::Read => self.send(process, Call::Read),
            Decision::Write(write) => self.send(process, Call::Write(write)),
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
        self.last_version += 1;
        let before = self.stored.as_ref().and_then(|r| r.holder.clone());
        if before.is_some() && write.holder.is_some() && before != write.holder {
            self.takeovers += 1;
        }
        self.stored = Some(Record {
            version: self.last_version.to_string(),
            holder: write.holder.clone(),
            released: write.holder.is_none(),
            duration: Timing::default().lease_duration,
            transitions: write.transitions,
        });
        Ok(self.stored.clone())
    }

    fn deliver_request(&mut self, index: usize, duplicate: bool) {
        let request = if duplicate {
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

    fn deliver_answer(&mut self, index: usize) {
        let answer = self.answers.swap_remove(index);
        let now = self.now;
        let process = &mut self.processes[answer.to];
        let Some((id, call, started)) = process.pending_call.take() else {
            return;
        };
        if id != answer.id {
            process.pending_call = Some((id, call, started));
            return;
        }
        match (call, answer.result) {
            (Call::Read, Ok(record)) => process.candidate.on_read(record, now),
            (Call::Write(_), Ok(Some(record))) => process.candidate.on_write(record, started, now),
            _ => process.candidate.on_failure(),
        }
    }

    fn run_undisturbed(&mut self, process: usize, every: u64, rounds: u64) {
        for _ in 0..rounds {
            loop {
                self.run(process);
                let before = self.answers.len();
                while let Some(index) = self.requests.iter().position(|r| r.from == process) {
                    self.deliver_request(index, false);
                }
                if self.answers.len() == before {
                    break;
                }
                while let Some(index) = self.answers.iter().position(|a| a.to == process) {
                    self.deliver_answer(index);
                }
            }
            self.now += Duration::from_millis(every);
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Advance(ms) => self.now += Duration::from_millis(ms),
            Op::Run(process) => self.run(process),
            Op::RunUndisturbed {
                process,
                every,
                rounds,
            } => self.run_undisturbed(process, every, rounds),
            Op::DeliverRequest { pick, duplicate } if !self.requests.is_empty() => {
                self.deliver_request(pick % self.requests.len(), duplicate);
            }
            Op::DeliverAnswer(pick) if !self.answers.is_empty() => {
                self.deliver_answer(pick % self.answers.len());
            }
            Op::LoseRequest(pick) if !self.requests.is_empty() => {
                self.requests.swap_remove(pick % self.requests.len());
            }
            Op::LoseAnswer(pick) if !self.answers.is_empty() => {
                self.answers.swap_remove(pick % self.answers.len());
            }
            Op::Release(process) => {
                if let Some(release) = self.processes[process].candidate.release(self.now) {
                    self.send(process, Call::Write(release));
                }
            }
            Op::Restart(index) => {
                self.processes[index] = self.new_process();
                // Answers to the old process are lost.
                self.answers.retain(|a| a.to != index);
            }
            Op::Delete => self.stored = None,
            Op::ClearHolder => {
                self.last_version += 1;
                if let Some(stored) = &mut self.stored {
                    stored.version = self.last_version.to_string();
                    (stored.holder, stored.released) = (None, false);
                }
            }
            Op::DeliverRequest { .. } | Op::DeliverAnswer(_) | Op::LoseRequest(_) | Op::LoseAnswer(_) => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn there_are_never_two_leaders(ops in prop::collection::vec(op(), 1..300)) {
        let mut simulation = Simulation::new(true);
        for op in &ops {
            simulation.apply(op);
            prop_assert!(simulation.leaders().len() <= 1, "{:?} after {op:?}", simulation.leaders());
        }
    }

    #[test]
    fn with_an_intact_network_a_process_leads_within_fifteen_seconds(
        ops in prop::collection::vec(op(), 1..100), process in 0..CANDIDATES,
    ) {
        let mut simulation = Simulation::new(true);
        for op in &ops {
            simulation.apply(op);
        }
        simulation.requests.clear();
        simulation.answers.clear();
        let new_process = simulation.new_process();
        simulation.processes[process] = new_process;
        // The other processes have crashed; this one runs ten times a second.
        let crashed = simulation.now;
        while !simulation.processes[process].candidate.is_leader(simulation.now) {
            simulation.run(process);
            while !simulation.requests.is_empty() {
                simulation.deliver_request(0, false);
            }
            while !simulation.answers.is_empty() {
                simulation.deliver_answer(0);
            }
            simulation.now += Duration::from_millis(100);
            prop_assert!(simulation.now.checked_sub(crashed).unwrap() <= Duration::from_secs(15));
        }
    }
}

#[test]
fn a_stopped_leader_is_replaced_and_no_longer_leads() {
    let mut simulation = Simulation::new(true);
    simulation.run_undisturbed(0, 100, 80);
    assert_eq!(simulation.leaders(), ["p1"]);
    simulation.run_undisturbed(1, 100, 120);
    assert_eq!(simulation.leaders(), ["p2"]);
    assert_eq!(simulation.takeovers, 1);
}

#[test]
fn without_version_comparison_there_would_be_two_leaders() {
    let mut simulation = Simulation::new(false);
    // Both read that there is no Lease, then both write.
    for _ in ["read", "write"] {
        for process in [0, 1] {
            simulation.run(process);
            simulation.deliver_request(0, false);
        }
        simulation.deliver_answer(0);
        simulation.deliver_answer(0);
    }
    // Both renew until they consider themselves the leader.
    for _ in 0..80 {
        simulation.now += Duration::from_millis(100);
        for process in [0, 1] {
            simulation.run(process);
            while !simulation.requests.is_empty() {
                simulation.deliver_request(0, false);
                simulation.deliver_answer(0);
            }
        }
    }
    assert_eq!(
        simulation.leaders().len(),
        2,
        "the simulation detects a broken election"
    );
}
