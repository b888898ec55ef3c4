//! What must survive the operator about an `EtcdBackup`: runs under way, and how earlier ones ended.
//!
//! Pure. It is read from the status and written there before anything is done; nothing else is remembered anywhere.

use std::fmt;

use etcd_operator_api::EtcdBackupStatus;
use etcd_operator_api::backup::ActiveRun;
use etcd_operator_api::span::second;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// What a Job of ours does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Task {
    /// Makes a backup.
    Backup,
    /// Deletes old ones.
    Prune,
    /// Deletes all, as the object goes.
    Erase,
}

impl Task {
    const ALL: [Self; 3] = [Self::Backup, Self::Prune, Self::Erase];

    /// The one with this word, if this version knows it.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|task| task.as_str() == word)
    }

    /// The word in statuses and labels.
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

/// A run that is not recorded yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// What it does.
    pub task: Task,
    /// When it was due: with the UID of the object that is its name.
    pub due: Timestamp,
    /// When it started; without, it waits for its turn, or for its time.
    pub started: Option<Timestamp>,
    /// The UID of its Job, once that was seen.
    pub job_uid: Option<String>,
    /// How often its Job was made.
    pub attempt: i64,
    /// Why its Job was not made, or its pod has not started.
    pub note: Option<String>,
}

impl Run {
    /// A run that has not started.
    pub fn due(task: Task, due: Timestamp) -> Self {
        Self {
            task,
            due: second(due),
            started: None,
            job_uid: None,
            attempt: 1,
            note: None,
        }
    }

    /// How it is called in stores and results.
    pub fn id(&self, uid: &str) -> String {
        format!("{}/{uid}", self.due)
    }

    /// The name of its Job: the same whoever makes it, so that there is one at most.
    pub fn job(&self, backup: &str) -> String {
        let seconds = self.due.as_second();
        match self.task {
            Task::Backup => format!("{backup}-{seconds:010}"),
            Task::Prune => format!("{backup}-p{}", base36(seconds)),
            Task::Erase => format!("{backup}-d{}", base36(seconds)),
        }
    }
}

/// What must survive the operator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// Runs that are not recorded yet.
    pub runs: Vec<Run>,
    /// When the last run was due that was started or given up.
    pub last: Option<Timestamp>,
    /// When the last good backup was finished.
    pub success: Option<Timestamp>,
    /// How many runs have failed since.
    pub failures: i64,
    /// What was asked for by the annotation, and was done.
    pub requested: Option<String>,
    /// The names of recorded good runs.
    pub recorded: Vec<String>,
    /// Runs of tasks that only a newer version of the operator knows. They are kept for it as they are: nothing here goes on
    /// with one or waits for it.
    pub unknown: Vec<ActiveRun>,
}

impl Memory {
    /// Reads a status, one of the ancestor's too: what that had made is not made again.
    pub fn read(status: Option<&EtcdBackupStatus>) -> Self {
        let Some(status) = status else {
            return Self::default();
        };
        let time = |time: &Option<Time>| time.as_ref().map(|time| time.0);
        let success = time(&status.last_success_date);
        let made = status.succeeded.then(|| success.unwrap_or(Timestamp::UNIX_EPOCH));
        let active = || status.active.iter().flatten();
        Self {
            runs: active().filter_map(run).collect(),
            unknown: active()
                .filter(|active| Task::of(&active.task).is_none())
                .cloned()
                .collect(),
            last: time(&status.last_schedule_time).or(made),
            success,
            failures: status.failures.unwrap_or(0),
            requested: status.last_backup_now.clone(),
            recorded: status
                .history
                .iter()
                .flatten()
                .filter_map(|record| record.run.clone())
                .collect(),
        }
    }

    /// The run that does this.
    pub fn of(&self, task: Task) -> Option<&Run> {
        self.runs.iter().find(|run| run.task == task)
    }

    /// Whether a Job is of a run that only a newer version of the operator knows.
    pub fn is_of_unknown(&self, job: &str) -> bool {
        self.unknown.iter().any(|run| run.job == job)
    }

    /// The API server does not take the Job of a run.
    pub fn refused(&mut self, run: &Run, why: String) {
        let own = self
            .runs
            .iter_mut()
            .find(|own| own.task == run.task && own.due == run.due);
        if let Some(own) = own {
            own.note = Some(why);
        }
    }

    /// The runs as the status has them.
    pub fn active(&self, backup: &str, uid: &str) -> Option<Vec<ActiveRun>> {
        let runs: Vec<_> = self
            .runs
            .iter()
            .map(|run| ActiveRun {
                run: run.id(uid),
                job: run.job(backup),
                task: run.task.to_string(),
                due: Some(Time(run.due)),
                started_at: run.started.map(Time),
                job_uid: run.job_uid.clone(),
                attempt: (run.attempt > 1).then_some(run.attempt),
                message: run.note.clone(),
                ..ActiveRun::default()
            })
            .chain(self.unknown.iter().cloned())
            .collect();
        (!runs.is_empty()).then_some(runs)
    }
}

fn run(active: &ActiveRun) -> Option<Run> {
    Some(Run {
        task: Task::of(&active.task)?,
        due: active.due.as_ref()?.0,
        started: active.started_at.as_ref().map(|time| time.0),
        job_uid: active.job_uid.clone(),
        attempt: active.attempt.unwrap_or(1),
        note: active.message.clone(),
    })
}

/// Digits and letters, as names of objects may hold them: seven hold every second up to the year 4453.
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
    fn the_name_of_a_job_says_when_it_was_due_and_fits_the_longest_name() {
        let due = at("2026-11-23T03:00:00.7Z");
        let name = "b".repeat(MAX_NAME);
        let mut names = Vec::new();
        for task in Task::ALL {
            let job = Run::due(task, due).job(&name);
            assert!(job.len() <= 63, "{job}");
            names.push(job);
        }
        assert_eq!(Run::due(Task::Backup, due).job("orders"), "orders-1795402800");
        names.dedup();
        assert_eq!(names.len(), 3);
        assert_eq!(Run::due(Task::Backup, due).id("uid"), "2026-11-23T03:00:00Z/uid");
    }

    #[test]
    fn runs_are_read_as_they_were_written() {
        let mut run = Run::due(Task::Backup, at("2026-11-23T03:00:00Z"));
        run.started = Some(at("2026-11-23T03:00:01Z"));
        run.job_uid = Some("job".to_owned());
        run.attempt = 2;
        run.note = Some("ErrImagePull".to_owned());
        let memory = Memory {
            runs: vec![run, Run::due(Task::Prune, at("2026-11-22T03:00:00Z"))],
            ..Memory::default()
        };
        let status = EtcdBackupStatus {
            active: memory.active("orders", "uid"),
            ..EtcdBackupStatus::default()
        };
        assert_eq!(Memory::read(Some(&status)), memory);
    }

    #[test]
    fn a_run_that_only_a_newer_version_knows_stays_as_it_is() {
        let known = Run::due(Task::Prune, at("2026-11-22T03:00:00Z"));
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
        let alone = Memory::read(Some(&status(&active)));
        assert_eq!(alone.runs, []);
        assert_eq!(alone.active("orders", "uid").as_ref(), Some(&active));

        active.push(ActiveRun {
            run: known.id("uid"),
            job: known.job("orders"),
            task: known.task.to_string(),
            due: Some(Time(known.due)),
            ..ActiveRun::default()
        });
        let both = Memory::read(Some(&status(&active)));
        assert_eq!(both.runs, [known]);
        assert!(both.active("orders", "uid").unwrap().contains(&newer));
    }

    #[test]
    fn what_the_older_operator_made_counts_as_made() {
        let status = EtcdBackupStatus {
            succeeded: true,
            last_success_date: Some(Time(at("2020-01-01T00:00:00Z"))),
            ..EtcdBackupStatus::default()
        };
        assert_eq!(Memory::read(Some(&status)).last, Some(at("2020-01-01T00:00:00Z")));
        let failed = EtcdBackupStatus {
            reason: Some("no such bucket".to_owned()),
            ..EtcdBackupStatus::default()
        };
        assert_eq!(Memory::read(Some(&failed)).last, None);
    }
}
