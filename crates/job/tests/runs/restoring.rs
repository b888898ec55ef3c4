//! Restoring a stored backup to check it, with programs that misbehave: it never counts, nothing is left, and no process
//! outlives the run.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use etcd_operator_api::backup::Verification;
use etcd_operator_api::contract::JobOrder;
use etcd_operator_etcd::tool::Tools;
use etcd_operator_job::budget::{BUFFERS, Budget};
use etcd_operator_job::clock;
use jiff::SignedDuration;
use tokio_util::sync::CancellationToken;

use crate::support::{Bench, Fake, Folder, Manner, order, other_snapshot, snapshot};

/// Programs of etcd 3.6.16 that are scripts: what the server does beside telling its version, and what restores.
fn programs(etcd: &str, etcdutl: &str) -> Folder {
    let folder = Folder::new();
    let version = "[ \"$1\" = --version ] && echo 'etcd Version: 3.6.16' && exit 0";
    for (name, script) in [
        ("etcd", format!("{version}\n{etcd}")),
        ("etcdutl", etcdutl.to_owned()),
    ] {
        write(&folder.0.join(name), &script);
    }
    folder
}

/// By a process of its own: a file that this one holds open while another test starts a program cannot be run.
fn write(path: &Path, script: &str) {
    let written = Command::new("/bin/sh")
        .args([
            "-c",
            "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$2\" && chmod 755 \"$2\"",
            "sh",
            script,
        ])
        .arg(path)
        .status();
    assert!(written.expect("a shell").success());
}

/// Makes of the snapshot what a server would start with.
const RESTORES: &str = "for word; do case $word in --data-dir=*) data=${word#*=};; esac; done
/bin/mkdir -p $data/member/snap && /bin/cp \"$3\" $data/member/snap/db";

fn restoring() -> JobOrder {
    order("u", "r", |task| task.verification = Verification::Restore)
}

fn bench(programs: &Folder) -> Bench {
    Bench {
        tools: Tools::at(&programs.0),
        ..Bench::new()
    }
}

/// Whether a process of this number runs; one that has ended and is only remembered does not.
fn runs(pid: &str) -> bool {
    let status = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
    status.is_ok_and(|status| !status.contains(") Z "))
}

#[track_caller]
fn nothing_is_left(bench: &Bench) {
    assert_eq!(bench.names(), [""; 0], "in the store");
    let left: Vec<_> = std::fs::read_dir(&bench.scratch.0)
        .expect("a directory")
        .flatten()
        .collect();
    assert!(left.is_empty(), "in scratch: {left:?}");
}

#[tokio::test]
async fn what_the_program_says_when_it_refuses_is_told_and_the_next_member_asked() {
    let programs = programs("exit 9", "echo 'snapshot is upside down' >&2; exit 7");
    let bench = bench(&programs);
    let members = Fake::of(&[Manner::Good, Manner::Good], snapshot());
    let failure = bench.run(&members, &restoring()).await.expect_err("it refuses");
    assert_eq!(
        (failure.reason.as_ref(), failure.is_retriable),
        ("RestoreFailed", true)
    );
    for part in ["etcdutl", "7", "snapshot is upside down"] {
        assert!(failure.message.contains(part), "{failure}");
    }
    assert_eq!(members.begun.load(std::sync::atomic::Ordering::SeqCst), 2);
    nothing_is_left(&bench);
}

#[tokio::test]
async fn a_server_that_ends_is_told_with_its_last_words() {
    let programs = programs("echo 'panic: no such bucket' >&2; exit 2", RESTORES);
    let bench = bench(&programs);
    let failure = bench.run(&Fake::good(), &restoring()).await.expect_err("it ends");
    assert_eq!(failure.reason, "RestoreFailed");
    assert!(failure.message.contains("panic: no such bucket"), "{failure}");
    nothing_is_left(&bench);
}

#[tokio::test]
async fn a_restored_database_that_is_not_the_streamed_one_is_no_backup() {
    // The second one lacks a key that the first one has.
    for (etcdutl, words) in [
        ("exit 0", "left no database"),
        (
            "for word; do case $word in --data-dir=*) data=${word#*=};; esac; done
/bin/mkdir -p $data/member/snap && /bin/cp \"${0%/*}/other.db\" $data/member/snap/db",
            "does not hold the keys of the stream",
        ),
    ] {
        let programs = programs("exec /bin/sleep 600", etcdutl);
        std::fs::write(programs.0.join("other.db"), other_snapshot()).expect("written");
        let bench = bench(&programs);
        let failure = bench
            .run(&Fake::good(), &restoring())
            .await
            .expect_err("another one");
        assert_eq!(failure.reason, "RestoreFailed");
        assert!(failure.message.contains(words), "{failure}");
        nothing_is_left(&bench);
    }
}

#[tokio::test]
async fn a_program_of_an_unknown_version_or_of_another_kind_is_refused_first() {
    for (said, words) in [
        (
            "etcd Version: 4.0.0",
            "restoring with etcd 4.0.0 is not supported",
        ),
        ("hello", "does not say which version it is: hello"),
    ] {
        let programs = programs("", "exit 0");
        write(&programs.0.join("etcd"), &format!("echo '{said}'"));
        let bench = bench(&programs);
        let members = Fake::good();
        let failure = bench.run(&members, &restoring()).await.expect_err("refused");
        assert_eq!(
            (failure.reason.as_ref(), failure.is_retriable),
            ("EtcdImage", false)
        );
        assert!(failure.message.contains(words), "{failure}");
        assert_eq!(members.begun.load(std::sync::atomic::Ordering::SeqCst), 0);
    }
}

#[tokio::test]
async fn a_program_that_hangs_dies_with_the_run() {
    // The server is one that starts and never serves; the other one never ends.
    for (etcd, etcdutl) in [
        ("echo $$ > \"${0%/*}/pid\"; exec /bin/sleep 600", RESTORES),
        ("", "echo $$ > \"${0%/*}/pid\"; exec /bin/sleep 600"),
    ] {
        let programs = programs(etcd, etcdutl);
        let bench = bench(&programs);
        let stop = CancellationToken::new();
        let started = async {
            let pid = programs.0.join("pid");
            loop {
                if let Ok(text) = std::fs::read_to_string(&pid)
                    && text.ends_with('\n')
                {
                    stop.cancel();
                    return text.trim().to_owned();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let (members, order) = (Fake::good(), restoring());
        let run = bench.run_until(&members, &order, Budget::new(BUFFERS), stop.clone());
        let (made, pid) = tokio::join!(run, started);
        let failure = made.expect_err("it was asked to end");
        assert_eq!((failure.reason.as_ref(), failure.is_retriable), ("Stopped", true));
        while runs(&pid) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        nothing_is_left(&bench);
    }
}

#[tokio::test]
async fn the_deadline_of_a_run_holds_for_its_programs() {
    let programs = programs("", "exec /bin/sleep 600");
    let bench = bench(&programs);
    let soon = order("u", "r", |task| {
        task.verification = Verification::Restore;
        task.deadline = clock::now()
            .checked_add(SignedDuration::from_secs(2))
            .expect("soon");
    });
    let failure = bench.run(&Fake::good(), &soon).await.expect_err("over");
    assert_eq!(
        (failure.reason.as_ref(), failure.is_retriable),
        ("Deadline", false)
    );
    nothing_is_left(&bench);
}
