//! A small Kubernetes for plans: it makes the Jobs that are planned, lets them end as a story says, and may lose anything.

use std::time::Duration;

use etcd_operator_api::backup::BackupJob;
use etcd_operator_api::contract::{JobOutcome, JobResult, Stored};
use etcd_operator_api::location::{Location, ObjectPath};
use etcd_operator_api::retention::Keep;
use jiff::{SignedDuration, Timestamp};

use crate::desired::{Desired, Source, When};
use crate::memory::{Memory, Task};
use crate::plan::{Plan, plan};
use crate::world::{JobEnd, JobSeen, Origin, PodSeen, World};

pub(super) const START: i64 = 1_790_000_000;

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(START + second).unwrap()
}

pub(super) fn desired(when: When) -> Desired {
    Desired {
        source: Source::Cluster("orders".to_owned()),
        client_tls: None,
        location: Location::Oss {
            path: ObjectPath {
                bucket: "b".to_owned(),
                key: "k".to_owned(),
            },
            secret: Some("aliyun".to_owned()),
            endpoint: "http://oss".to_owned(),
            region: None,
            ca_secret: None,
        },
        when,
        suspended: false,
        timeout: Duration::from_mins(1),
        late: None,
        keep: Keep::default(),
        compression: etcd_operator_api::backup::Compression::None,
        keys: None,
        verification: etcd_operator_api::backup::Verification::Checksum,
        erases: false,
        etcd_image: None,
        job: BackupJob::default(),
    }
}

/// What plans are made of, over time.
pub(super) struct Scene {
    pub(super) world: World,
    /// The UIDs of Jobs that were ever made, by the name of the Job.
    pub(super) made: Vec<String>,
    /// Runs that were recorded as good.
    pub(super) good: Vec<Timestamp>,
    /// Runs that were recorded as failed.
    pub(super) bad: Vec<(Timestamp, String)>,
    /// What was given up.
    pub(super) missed: Vec<Timestamp>,
}

impl Scene {
    pub(super) fn new(desired: Desired) -> Self {
        let world = World {
            desired,
            now: at(0),
            namespace: "shop".to_owned(),
            name: "nightly".to_owned(),
            uid: "uid".to_owned(),
            created: at(0),
            deleted: None,
            generation: 1,
            is_edited: false,
            request: None,
            memory: Memory::default(),
            origin: Ok(Origin::default()),
            jobs: Vec::new(),
            pods: Vec::new(),
            foreign: None,
            has_turn: true,
        };
        Self {
            world,
            made: Vec::new(),
            good: Vec::new(),
            bad: Vec::new(),
            missed: Vec::new(),
        }
    }

    pub(super) fn every(seconds: u64) -> Self {
        Self::new(desired(When::Every(Duration::from_secs(seconds))))
    }

    pub(super) fn once() -> Self {
        Self::new(desired(When::Once))
    }

    /// The plan, without doing anything of it.
    pub(super) fn plan(&self) -> Plan {
        plan(&self.world)
    }

    /// A whole pass at a time.
    pub(super) fn pass(&mut self, second: i64) -> Plan {
        self.world.now = at(second);
        self.upto(3)
    }

    /// A pass that ends, by a crash, before the status is written (0), before Jobs are deleted (1), before they are made
    /// (2), or not at all.
    pub(super) fn upto(&mut self, calls: usize) -> Plan {
        let plan = plan(&self.world);
        if calls > 0 {
            self.world.memory = plan.memory.clone();
            for end in &plan.ends {
                match &end.outcome {
                    super::super::Outcome::Stored(_) => self.good.push(end.run.due),
                    super::super::Outcome::Failed { reason, .. } => {
                        self.bad.push((end.run.due, reason.clone()));
                    }
                    super::super::Outcome::Pruned { .. } => {}
                }
            }
            self.missed.extend(plan.missed.as_ref().map(|(due, _)| *due));
        }
        if calls > 1 {
            for drop in &plan.drops {
                self.world.jobs.retain(|job| job.uid != drop.uid);
                self.world.pods.retain(|pod| pod.job_uid != drop.uid);
            }
        }
        if calls > 2 {
            for run in &plan.jobs {
                let name = run.job(&self.world.name);
                if self.world.job(&name).is_none() {
                    self.make(name);
                }
            }
        }
        plan
    }

    pub(super) fn make(&mut self, name: String) {
        let uid = format!("job-{}", self.made.len());
        self.made.push(name.clone());
        self.world.jobs.push(JobSeen {
            name: name.clone(),
            uid: uid.clone(),
            generation: self.world.generation,
            location: Some(self.world.place()),
            is_going: false,
            end: None,
        });
        self.world.pods.push(PodSeen {
            job: name,
            job_uid: uid,
            is_live: true,
            has_started: true,
            waits: None,
            said: None,
        });
    }

    /// The Job that was made last ends like this.
    pub(super) fn end(&mut self, outcome: &JobOutcome) {
        let job = self.world.jobs.last_mut().expect("a Job");
        let is_complete = !matches!(outcome, JobOutcome::Failed { .. });
        job.end = Some(JobEnd {
            is_complete,
            reason: if is_complete { "" } else { "BackoffLimitExceeded" }.to_owned(),
            message: String::new(),
        });
        let uid = job.uid.clone();
        let task = self.world.memory.runs.iter();
        let run = task
            .filter(|run| run.job(&self.world.name) == job.name)
            .map(|run| run.id(&self.world.uid))
            .next()
            .unwrap_or_default();
        let now = self.world.now;
        for pod in self.world.pods.iter_mut().filter(|pod| pod.job_uid == uid) {
            pod.is_live = false;
            pod.said = Some((
                now,
                Ok(JobResult {
                    version: 1,
                    run: run.clone(),
                    outcome: outcome.clone(),
                }),
            ));
        }
    }

    /// A pod of the Job that was made last fails, and Kubernetes makes another one.
    pub(super) fn fail_a_try(&mut self, reason: &str) {
        let job = self.world.jobs.last().expect("a Job").clone();
        self.end(&failed(reason));
        self.world.jobs.last_mut().expect("a Job").end = None;
        self.world.pods.push(PodSeen {
            job: job.name,
            job_uid: job.uid,
            is_live: true,
            has_started: true,
            waits: None,
            said: None,
        });
    }

    /// It ends well, whatever it does.
    pub(super) fn end_well(&mut self) {
        let name = self.world.jobs.last().expect("a Job").name.clone();
        let runs = self.world.memory.runs.iter();
        let mut own = runs.filter(|run| run.job(&self.world.name) == name);
        let is_backup = own.next().is_none_or(|run| run.task == Task::Backup);
        let now = self.world.now;
        self.end(&if is_backup { stored(now) } else { pruned() });
    }

    /// It ends, and its pod is gone before anybody asks.
    pub(super) fn lose(&mut self, is_complete: bool) {
        let job = self.world.jobs.last_mut().expect("a Job");
        job.end = Some(JobEnd {
            is_complete,
            reason: "DeadlineExceeded".to_owned(),
            message: "too late".to_owned(),
        });
        let uid = job.uid.clone();
        self.world.pods.retain(|pod| pod.job_uid != uid);
    }
}

pub(super) fn stored(now: Timestamp) -> JobOutcome {
    JobOutcome::Stored(Box::new(Stored {
        object: "k_v7".to_owned(),
        revision: 7,
        size: 20,
        sha256: "00".to_owned(),
        etcd_version: "3.6.16".to_owned(),
        cluster_id: "cdf8".to_owned(),
        member: "orders-1".to_owned(),
        verification: "Checksum".to_owned(),
        incarnation: None,
        started_at: now - SignedDuration::from_secs(1),
        completed_at: now,
    }))
}

pub(super) fn pruned() -> JobOutcome {
    JobOutcome::Pruned {
        deleted: 1,
        kept: 4,
        skipped: Vec::new(),
        more_skipped: 0,
    }
}

pub(super) fn failed(reason: &str) -> JobOutcome {
    JobOutcome::Failed {
        reason: reason.to_owned(),
        message: "no".to_owned(),
        retriable: false,
    }
}
