//! The list that the model of etcd is held to, against etcd itself: where a case fails here, the model is wrong.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use etcd_operator_e2e::components::{self, Component, EtcdVersion};
use etcd_operator_etcd::flags::{First, FirstState};
use etcd_operator_etcd::port::{Dial, Network};
use etcd_operator_etcd::url::{ClientUrl, PeerUrl};
use etcd_operator_etcd::version::Version;
use etcd_operator_testkit::etcd::conformance::{Bed, cases};
use futures::future::BoxFuture;
use futures::stream::{self, TryStreamExt as _};

use crate::etcds::{Fleet, Process};

/// Members as processes.
struct RealBed {
    fleet: Fleet,
    /// Where each version is.
    programs: BTreeMap<Version, PathBuf>,
    processes: Mutex<BTreeMap<u8, Process>>,
}

impl RealBed {
    fn processes(&self) -> MutexGuard<'_, BTreeMap<u8, Process>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn directory(&self, number: u8) -> PathBuf {
        self.fleet.config(number, FirstState::New, &[]).data_dir.into()
    }
}

fn remove(directory: &Path) {
    if directory.exists() {
        fs::remove_dir_all(directory).expect("the data of a process that ended can be removed");
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target).context("a file of the data cannot be copied")?;
        }
    }
    Ok(())
}

impl Bed for RealBed {
    fn version(&self) -> Version {
        self.fleet.number()
    }

    fn peer_url(&self, number: u8) -> PeerUrl {
        self.fleet.peer_url(number)
    }

    fn client_url(&self, number: u8) -> ClientUrl {
        self.fleet.client_url(number)
    }

    fn next_minor(&self) -> Version {
        let own = self.version();
        let mut newest = self.programs.keys().rev();
        let next = newest.find(|version| version.minor == own.minor + 1);
        next.expect("there is a newer minor").clone()
    }

    fn start_on(&self, number: u8, version: &Version, first: Option<First>) {
        self.kill(number);
        let mut config = self.fleet.config(number, FirstState::New, &[]);
        config.first = first;
        let process = self.fleet.start_on(version, &self.programs[version], config);
        let process = process.expect("etcd can be started");
        self.processes().insert(number, process);
    }

    fn kill(&self, number: u8) {
        if let Some(process) = self.processes().get_mut(&number) {
            process.kill();
        }
    }

    fn exit_code(&self, number: u8) -> Option<i32> {
        self.processes().get_mut(&number)?.exit_code()
    }

    fn wipe(&self, number: u8) {
        remove(&self.directory(number));
    }

    fn save(&self, number: u8) {
        let kept = self.directory(number).with_extension("kept");
        copy(&self.directory(number), &kept).expect("the data can be copied");
    }

    fn restore(&self, number: u8) {
        let kept = self.directory(number).with_extension("kept");
        remove(&self.directory(number));
        copy(&kept, &self.directory(number)).expect("the data can be copied back");
    }

    fn dialer(&self) -> &dyn Dial {
        &Network
    }

    fn put<'a>(&'a self, number: u8, key: &'a str, value: &'a str) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let output = self.fleet.etcdctl(number, &["put", key, value]).await;
            output.expect("etcdctl runs").status.success()
        })
    }

    fn get<'a>(&'a self, number: u8, key: &'a str) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            let output = self
                .fleet
                .etcdctl(number, &["get", "--print-value-only", key])
                .await;
            let output = output.expect("etcdctl runs");
            let value = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            (output.status.success() && !value.is_empty()).then_some(value)
        })
    }
}

/// Most of the time members wait for one another, so that a few cases fit beside one another.
const AT_ONCE: usize = 4;

async fn every_case_on(version: EtcdVersion) -> Result<()> {
    let number = version.number().parse()?;
    let mut programs = BTreeMap::new();
    for version in EtcdVersion::ALL {
        let program = components::find(Component::Etcd(version)).await?;
        programs.insert(version.number().parse()?, program);
    }
    let programs = &programs;
    let cases = cases().into_iter().filter(|case| case.is_about(&number));
    stream::iter(cases.map(Ok))
        .try_for_each_concurrent(AT_ONCE, |case| async move {
            eprintln!("{} on {}", case.name, version.number());
            let bed = RealBed {
                fleet: Fleet::new(version).await?,
                programs: programs.clone(),
                processes: Mutex::default(),
            };
            case.run(&bed).await;
            Ok(())
        })
        .await
}

#[tokio::test]
async fn the_model_s_cases_hold_on_3_2() -> Result<()> {
    every_case_on(EtcdVersion::V3_2_25).await
}

#[tokio::test]
async fn the_model_s_cases_hold_on_3_3() -> Result<()> {
    every_case_on(EtcdVersion::V3_3_27).await
}

#[tokio::test]
async fn the_model_s_cases_hold_on_3_4() -> Result<()> {
    every_case_on(EtcdVersion::V3_4_23).await
}

#[tokio::test]
async fn the_model_s_cases_hold_on_3_5() -> Result<()> {
    every_case_on(EtcdVersion::V3_5_35).await
}

#[tokio::test]
async fn the_model_s_cases_hold_on_3_6() -> Result<()> {
    every_case_on(EtcdVersion::V3_6_16).await
}

#[tokio::test]
async fn the_model_s_cases_hold_on_3_7() -> Result<()> {
    every_case_on(EtcdVersion::V3_7_3).await
}
