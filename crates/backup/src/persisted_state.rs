//! What must survive a restart of the operator: unfinished runs, and the outcome of earlier ones.
//!
//! Pure. The operator reads it from the status, and writes it there before it acts; it remembers nothing elsewhere.

use std::fmt;

use etcd_operator_api::EtcdBackupStatus;
use etcd_operator_api::backup::ActiveRun;
use etcd_operator_api::span::second;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// What the Job of a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Task {
    /// Makes a backup.
    Backup,
    /// Deletes backups that the retention policy no longer keeps.
    Prune,
    /// Deletes all backups, because the `EtcdBackup` is deleted.
    Erase,
}

impl Task {
    const ALL: [Self; 3] = [Self::Backup, Self::Prune, Self::Erase];

    /// The task of this name; `None` for a task that only a newer version of the operator knows.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|task| task.as_str() == name)
    }

    /// The name in statuses and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Backup => "Backup",
            Self::Prune => "Prune",
            Self::Erase => "Erase",
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A run whose result is not recorded yet. Its task and its due time give the name of its Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// What its Job does.
    pub task: Task,
    /// When it was due. Due time and UID of the object identify the run.
    pub due: Timestamp,
    /// When it started; `None` while it waits for its due time or for a free Job slot.
    pub started_at: Option<Timestamp>,
    /// The UID of its Job, once the operator has seen the Job.
    pub job_uid: Option<String>,
    /// How often its Job was created.
    pub attempt: i64,
    /// Why the API server rejects its Job, or why the pod of its Job has not started.
    pub message: Option<String>,
}

impl Run {
    /// A run that has not started.
    pub fn new(task: Task, due: Timestamp) -> Self {
        Self {
            task,
            due: second(due),
            started_at: None,
            job_uid: None,
            attempt: 1,
            message: None,
        }
    }

    /// The ID of the run in manifests and results: its due time and the UID of the `EtcdBackup`.
    pub fn id(&self, uid: &str) -> String {
        format!("{}/{uid}", self.due)
    }

    /// The name of its Job. It depends on the run alone, so a repeated create never makes a second Job.
    pub fn job_name(&self, backup: &str) -> String {
        let seconds = self.due.as_second();
        match self.task {
            Task::Backup => format!("{backup}-{seconds:010}"),
            Task::Prune => format!("{backup}-p{}", base36(seconds)),
            Task::Erase => format!("{backup}-d{}", base36(seconds)),
        }
    }
}

/// What must survive a restart of the operator. It is kept in the status only, and written there before the operator
/// acts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PersistedState {
    /// The runs that are not recorded yet.
    pub runs: Vec<Run>,
    /// The due time of the last run that was started or given up.
    pub last_due: Option<Timestamp>,
    /// When the last good backup was completed.
    pub last_success: Option<Timestamp>,
    /// How many runs have failed since the last good backup.
    pub failures: i64,
    /// The value of the annotation `backup-now` for which a backup was last started.
    pub handled_request: Option<String>,
    /// The IDs of the good runs in the history.
    pub recorded_runs: Vec<String>,
    /// Runs of tasks that only a newer version of the operator knows. They stay in the status as they are; this version
    /// neither continues them nor waits for them.
    pub unknown_runs: Vec<ActiveRun>,
}

impl PersistedState {
    /// Reads a status. In a status of the ancestor operator, a backup that was made counts as the last run.
    pub fn read(status: Option<&EtcdBackupStatus>) -> Self {
        let Some(status) = status else {
            return Self::default();
        };
        let time = |time: &Option<Time>| time.as_ref().map(|time| time.0);
        let success = time(&status.last_success_date);
        let made = status.succeeded.then(|| success.unwrap_or(Timestamp::UNIX_EPOCH));
        let active = || status.active.iter().flatten();
        Self {
            runs: active().filter_map(parse_run).collect(),
            unknown_runs: active()
                .filter(|active| Task::parse(&active.task).is_none())
                .cloned()
                .collect(),
            last_due: time(&status.last_schedule_time).or(made),
            last_success: success,
            failures: status.failures.unwrap_or(0),
            handled_request: status.last_backup_now.clone(),
            recorded_runs: status
                .history
                .iter()
                .flatten()
                .filter_map(|record| record.run.clone())
                .collect(),
        }
    }

    /// The first unfinished run of this task, started or not.
    pub fn run_of(&self, task: Task) -> Option<&Run> {
        self.runs.iter().find(|run| run.task == task)
    }

    /// Whether a Job belongs to a run whose task only a newer version of the operator knows.
    pub fn is_job_of_unknown_run(&self, job: &str) -> bool {
        self.unknown_runs.iter().any(|run| run.job == job)
    }

    /// Records why the API server rejects the Job of a run.
    pub fn set_job_rejected(&mut self, run: &Run, why: String) {
        let own = self
            .runs
            .iter_mut()
            .find(|own| own.task == run.task && own.due == run.due);
        if let Some(own) = own {
            own.message = Some(why);
        }
    }

    /// The value of `status.active`: unfinished runs, and those of unknown tasks as they were. `None` if there are
    /// none.
    pub fn active_runs(&self, backup: &str, uid: &str) -> Option<Vec<ActiveRun>> {
        let runs: Vec<_> = self
            .runs
            .iter()
            .map(|run| ActiveRun {
                run: run.id(uid),
                job: run.job_name(backup),
                task: run.task.to_string(),
                due: Some(Time(run.due)),
                started_at: run.started_at.map(Time),
                job_uid: run.job_uid.clone(),
                attempt: (run.attempt > 1).then_some(run.attempt),
                message: run.message.clone(),
                ..ActiveRun::default()
            })
            .chain(self.unknown_runs.iter().cloned())
            .collect();
        (!runs.is_empty()).then_some(runs)
    }
}

/// The run of an entry in `status.active`; `None` if its task is unknown or it has no due time.
fn parse_run(active: &ActiveRun) -> Option<Run> {
    Some(Run {
        task: Task::parse(&active.task)?,
        due: active.due.as_ref()?.0,
        started_at: active.started_at.as_ref().map(|time| time.0),
        job_uid: active.job_uid.clone(),
        attempt: active.attempt.unwrap_or(1),
        message: active.message.clone(),
    })
}

/// Encodes seconds in the digits and lower-case letters that names of objects allow: seven of them reach the year 4453.
fn base36(seconds: i64) -> String {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut rest = seconds.unsigned_abs();
    let mut text = Vec::new();
    loop {
        text.push(char::from(DIGITS[usize::try_from(rest % 36).unwrap_or(0)]));
        rest /= 36;
        if rest == 0 {
            return text.into_iter().rev().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use etcd_operator_api::names::MAX_NAME;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_job_name_contains_the_due_time_and_fits_the_longest_backup_name() {
        let due = at("2026-11-23T03:00:00.7Z");
        let name = "b".repeat(MAX_NAME);
        let mut names = Vec::new();
        for task in Task::ALL {
            let job = Run::new(task, due).job_name(&name);
            assert!(job.len() <= 63, "{job}");
            names.push(job);
        }
        assert_eq!(
            Run::new(Task::Backup, due).job_name("orders"),
            "orders-1795402800"
        );
        names.dedup();
        assert_eq!(names.len(), 3);
        assert_eq!(Run::new(Task::Backup, due).id("uid"), "2026-11-23T03:00:00Z/uid");
    }

    #[test]
    fn runs_survive_a_round_trip_through_the_status() {
        let mut run = Run::new(Task::Backup, at("2026-11-23T03:00:00Z"));
        run.started_at = Some(at("2026-11-23T03:00:01Z"));
        run.job_uid = Some("job".to_owned());
        run.attempt = 2;
        run.message = Some("ErrImagePull".to_owned());
        let persisted = PersistedState {
            runs: vec![run, Run::new(Task::Prune, at("2026-11-22T03:00:00Z"))],
            ..PersistedState::default()
        };
        let status = EtcdBackupStatus {
            active: persisted.active_runs("orders", "uid"),
            ..EtcdBackupStatus::default()
        };
        assert_eq!(PersistedState::read(Some(&status)), persisted);
    }

    #[test]
    fn a_run_with_an_unknown_task_is_preserved_unchanged() {
        let known = Run::new(Task::Prune, at("2026-11-22T03:00:00Z"));
        let newer = ActiveRun {
            run: "2026-11-23T03:00:00Z/uid".to_owned(),
            job: "orders-v1".to_owned(),
            task: "Verify".to_owned(),
            due: Some(Time(at("2026-11-23T03:00:00Z"))),
            later: BTreeMap::from([("depth".to_owned(), "Whole".into())]),
            ..ActiveRun::default()
        };
        let mut active = vec![newer.clone()];
        let status = |active: &[ActiveRun]| EtcdBackupStatus {
            active: Some(active.to_vec()),
            ..EtcdBackupStatus::default()
        };
        let alone = PersistedState::read(Some(&status(&active)));
        assert_eq!(alone.runs, []);
        assert_eq!(alone.active_runs("orders", "uid").as_ref(), Some(&active));

        active.push(ActiveRun {
            run: known.id("uid"),
            job: known.job_name("orders"),
            task: known.task.to_string(),
            due: Some(Time(known.due)),
            ..ActiveRun::default()
        });
        let both = PersistedState::read(Some(&status(&active)));
        assert_eq!(both.runs, [known]);
        assert!(both.active_runs("orders", "uid").unwrap().contains(&newer));
    }

    #[test]
    fn a_backup_of_the_ancestor_operator_counts_as_made() {
        let status = EtcdBackupStatus {
            succeeded: true,
            last_success_date: Some(Time(at("2020-01-01T00:00:00Z"))),
            ..EtcdBackupStatus::default()
        };
        assert_eq!(
            PersistedState::read(Some(&status)).last_due,
            Some(at("2020-01-01T00:00:00Z"))
        );
        let failed = EtcdBackupStatus {
            reason: Some("no such bucket".to_owned()),
            ..EtcdBackupStatus::default()
        };
        assert_eq!(PersistedState::read(Some(&failed)).last_due, None);
    }
}
