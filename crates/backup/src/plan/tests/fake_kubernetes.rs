//! A model of Kubernetes for tests of plans: it creates the planned Jobs, finishes them as a test says, and can lose
//! anything.

use std::collections::BTreeSet;
use std::time::Duration;

use etcd_operator_api::backup::BackupJob;
use etcd_operator_api::contract::{JobOutcome, JobResult, Stored};
use etcd_operator_api::location::{Location, ObjectPath};
use etcd_operator_api::retention::Keep;
use jiff::{SignedDuration, Timestamp};

use crate::desired::{Desired, Source, Trigger};
use crate::observed_state::{
    JobSlot, ObservedBackup, ObservedJob, ObservedPod, ResolvedSource, SourceProblem, SourceUnavailable,
    TerminalCondition, Termination,
};
use crate::persisted_state::{PersistedState, Task};
use crate::plan::{Outcome, Plan, plan};

pub(super) const START: i64 = 1_790_000_000;

/// By when a pod has ended: the timeout of one minute, a minute each for Job and pod, and two to stop and to report it.
pub(super) const POD_DEADLINE: SignedDuration = SignedDuration::from_mins(5);

/// All slots are in use.
pub(super) const NO_SLOT: JobSlot = JobSlot::Denied { limit: 8 };

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(START + second).unwrap()
}

pub(super) fn desired(trigger: Trigger) -> Desired {
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
        trigger,
        is_suspended: false,
        timeout: Duration::from_mins(1),
        starting_deadline: None,
        retention: Keep::default(),
        compression: etcd_operator_api::backup::Compression::None,
        encryption_secret: None,
        verification: etcd_operator_api::backup::Verification::Checksum,
        deletes_backups: false,
        etcd_image: None,
        job: BackupJob::default(),
    }
}

/// The observed state over time, and what became of runs.
pub(super) struct FakeKubernetes {
    pub(super) observed: ObservedBackup,
    /// The names of all Jobs that were ever created.
    pub(super) created_jobs: Vec<String>,
    /// The due times of runs that were recorded as successful.
    pub(super) successes: Vec<Timestamp>,
    /// The due times and reasons of runs that were recorded as failed.
    pub(super) failures: Vec<(Timestamp, String)>,
    /// The due times of runs that were recorded as missed.
    pub(super) missed: Vec<Timestamp>,
}

impl FakeKubernetes {
    pub(super) fn new(desired: Desired) -> Self {
        let observed = ObservedBackup {
            desired,
            now: at(0),
            namespace: "shop".to_owned(),
            name: "nightly".to_owned(),
            uid: "uid".to_owned(),
            created_at: at(0),
            deleted_at: None,
            generation: 1,
            is_edited: false,
            backup_request: None,
            persisted: PersistedState::default(),
            source: Ok(ResolvedSource::default()),
            jobs: Vec::new(),
            pods: Vec::new(),
            held_objects: BTreeSet::new(),
            foreign_job: None,
            job_slot: JobSlot::Granted,
        };
        Self {
            observed,
            created_jobs: Vec::new(),
            successes: Vec::new(),
            failures: Vec::new(),
            missed: Vec::new(),
        }
    }

    pub(super) fn every(seconds: u64) -> Self {
        Self::new(desired(Trigger::Interval(Duration::from_secs(seconds))))
    }

    pub(super) fn once() -> Self {
        Self::new(desired(Trigger::Once))
    }

    /// Computes the plan and does nothing.
    pub(super) fn plan(&self) -> Plan {
        plan(&self.observed)
    }

    /// A complete reconcile at this second.
    pub(super) fn reconcile_at(&mut self, second: i64) -> Plan {
        self.observed.now = at(second);
        self.reconcile_calls(3)
    }

    /// A reconcile that crashes before the status is written (0), before Jobs are deleted (1), before Jobs are created (2), or
    /// not at all (3).
    pub(super) fn reconcile_calls(&mut self, calls: usize) -> Plan {
        let plan = plan(&self.observed);
        if calls > 0 {
            self.observed.persisted = plan.persisted.clone();
            for finished in &plan.finished_runs {
                match &finished.outcome {
                    Outcome::Stored(_) => self.successes.push(finished.run.due),
                    Outcome::Failed { reason, .. } => {
                        self.failures.push((finished.run.due, reason.clone()));
                    }
                    Outcome::Pruned { .. } => {}
                }
            }
            self.missed.extend(plan.missed.as_ref().map(|missed| missed.due));
        }
        if calls > 1 {
            for deleted in &plan.jobs_to_delete {
                self.observed.jobs.retain(|job| job.uid != deleted.uid);
                self.observed.pods.retain(|pod| pod.job_uid != deleted.uid);
            }
        }
        if calls > 2 {
            for run in &plan.jobs_to_create {
                let name = run.job_name(&self.observed.name);
                if self.observed.job(&name).is_none() {
                    self.create_job(name);
                }
            }
        }
        plan
    }

    pub(super) fn create_job(&mut self, name: String) {
        let uid = format!("job-{}", self.created_jobs.len());
        self.created_jobs.push(name.clone());
        self.observed.jobs.push(ObservedJob {
            name: name.clone(),
            uid: uid.clone(),
            generation: self.observed.generation,
            held_objects: self.observed.held_objects.clone(),
            location: Some(self.observed.location_address()),
            is_being_deleted: false,
            terminal_condition: None,
            failure_target: None,
        });
        self.observed.pods.push(ObservedPod {
            job: name,
            job_uid: uid,
            is_active: true,
            deleted_at: None,
            ends_by: self.observed.now.checked_add(POD_DEADLINE).ok(),
            has_started: true,
            waiting_reason: None,
            termination: None,
        });
    }

    /// Finishes the Job that was created last.
    pub(super) fn finish_job(&mut self, outcome: &JobOutcome) {
        let job = self.observed.jobs.last_mut().expect("a Job");
        let is_complete = !matches!(outcome, JobOutcome::Failed { .. });
        job.terminal_condition = Some(TerminalCondition {
            is_complete,
            reason: if is_complete { "" } else { "BackoffLimitExceeded" }.to_owned(),
            message: String::new(),
        });
        let uid = job.uid.clone();
        let runs = self.observed.persisted.runs.iter();
        let run = runs
            .filter(|run| run.job_name(&self.observed.name) == job.name)
            .map(|run| run.id(&self.observed.uid))
            .next()
            .unwrap_or_default();
        let now = self.observed.now;
        for pod in self.observed.pods.iter_mut().filter(|pod| pod.job_uid == uid) {
            pod.is_active = false;
            pod.termination = Some(Termination {
                finished_at: now,
                result: Ok(JobResult {
                    version: 1,
                    run: run.clone(),
                    outcome: outcome.clone(),
                }),
            });
        }
    }

    /// Fails the pod of the Job that was created last; Kubernetes creates another one.
    pub(super) fn fail_pod(&mut self, reason: &str) {
        let job = self.observed.jobs.last().expect("a Job").clone();
        self.finish_job(&failed(reason));
        self.observed.jobs.last_mut().expect("a Job").terminal_condition = None;
        self.observed.pods.push(ObservedPod {
            job: job.name,
            job_uid: job.uid,
            is_active: true,
            deleted_at: None,
            ends_by: self.observed.now.checked_add(POD_DEADLINE).ok(),
            has_started: true,
            waiting_reason: None,
            termination: None,
        });
    }

    /// Finishes the Job that was created last with a success, whatever its task.
    pub(super) fn succeed_job(&mut self) {
        let name = self.observed.jobs.last().expect("a Job").name.clone();
        let runs = self.observed.persisted.runs.iter();
        let mut own = runs.filter(|run| run.job_name(&self.observed.name) == name);
        let is_backup = own.next().is_none_or(|run| run.task == Task::Backup);
        let now = self.observed.now;
        self.finish_job(&if is_backup { stored(now) } else { pruned() });
    }

    /// Finishes the Job that was created last, and removes its pods before the operator reads the result.
    pub(super) fn lose_result(&mut self, is_complete: bool) {
        let job = self.observed.jobs.last_mut().expect("a Job");
        job.terminal_condition = Some(TerminalCondition {
            is_complete,
            reason: "DeadlineExceeded".to_owned(),
            message: "too late".to_owned(),
        });
        let uid = job.uid.clone();
        self.observed.pods.retain(|pod| pod.job_uid != uid);
    }
}

/// The source of a backup whose cluster `orders` is unavailable.
pub(super) fn unavailable(reason: SourceProblem) -> Result<ResolvedSource, SourceUnavailable> {
    Err(SourceUnavailable {
        cluster: "orders".to_owned(),
        reason,
    })
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
