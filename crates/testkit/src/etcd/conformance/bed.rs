//! Where the cases run: what they do to members, and the model as such a place.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_operator_etcd::endpoint::{Endpoint, Limits};
use etcd_operator_etcd::error::{Class, Error};
use etcd_operator_etcd::flags::{First, FirstState};
use etcd_operator_etcd::id::MemberId;
use etcd_operator_etcd::membership::{Known, Membership};
use etcd_operator_etcd::port::{Dial, Port};
use etcd_operator_etcd::url::{ClientUrl, PeerUrl};
use etcd_operator_etcd::version::{Minor, Version};
use futures::future::BoxFuture;

use crate::etcd::{Caller, Client, Content, DiskId, Etcds, ProcessId, Start};

/// A place with members, by number.
pub trait Bed: Send + Sync {
    /// What they run, unless told otherwise.
    fn version(&self) -> Version;
    /// A version of the next minor.
    fn next_minor(&self) -> Version;
    /// Where members find one.
    fn peer_url(&self, number: u8) -> PeerUrl;
    /// Where clients find one.
    fn client_url(&self, number: u8) -> ClientUrl;
    /// Starts one on the disk that it had, if it had one.
    fn start(&self, number: u8, first: Option<First>) {
        self.start_on(number, &self.version(), first);
    }
    /// The same with another version.
    fn start_on(&self, number: u8, version: &Version, first: Option<First>);
    /// Kills one.
    fn kill(&self, number: u8);
    /// With what one ended; none while it runs.
    fn exit_code(&self, number: u8) -> Option<i32>;
    /// Empties the disk of one that does not run.
    fn wipe(&self, number: u8);
    /// Keeps a copy of the disk of one that does not run.
    fn save(&self, number: u8);
    /// Puts that copy back.
    fn restore(&self, number: u8);
    /// Reaches them.
    fn dialer(&self) -> &dyn Dial;
    /// Writes a key at one; whether that was acknowledged.
    fn put<'a>(&'a self, number: u8, key: &'a str, value: &'a str) -> BoxFuture<'a, bool>;
    /// Reads a key at one behind a quorum.
    fn get<'a>(&'a self, number: u8, key: &'a str) -> BoxFuture<'a, Option<String>>;
}

/// For a machine that also compiles.
const LIMIT: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(100);

/// What cases do on any bed.
impl dyn Bed + '_ {
    pub(super) fn name(number: u8) -> String {
        format!("c-{number}")
    }

    pub(super) fn first(&self, state: FirstState, numbers: &[u8]) -> First {
        let member = |&number: &u8| (Self::name(number), self.peer_url(number));
        First {
            state,
            token: "bed".to_owned(),
            members: numbers.iter().map(member).collect(),
        }
    }

    /// So many members, bootstrapped together, all serving.
    pub(super) async fn bootstrap(&self, size: u8) {
        let numbers: Vec<u8> = (0..size).collect();
        for &number in &numbers {
            self.start(number, Some(self.first(FirstState::New, &numbers)));
        }
        for &number in &numbers {
            self.serving(number).await;
        }
    }

    pub(super) async fn dial(&self, number: u8) -> Result<Box<dyn Port>, Error> {
        self.dialer()
            .dial(&Endpoint::plain(self.client_url(number)))
            .await
    }

    /// Waits for a member that answers linearizable reads as a voter.
    pub(super) async fn serving(&self, number: u8) -> Known {
        self.eventually("a member serves", || self.known(number)).await
    }

    pub(super) async fn known(&self, number: u8) -> Option<Known> {
        let port = self.dial(number).await.ok()?;
        match port.membership().await {
            Membership::Known(known) => Some(known),
            Membership::Unknown(_) => None,
        }
    }

    pub(super) async fn id(&self, reader: u8, number: u8) -> MemberId {
        let known = self.serving(reader).await;
        let found = known.at(&self.peer_url(number)).map(|member| member.id);
        found.unwrap_or_else(|| panic!("no member {number} in {known:?}"))
    }

    /// The number of the leader.
    pub(super) async fn leader(&self, reader: u8) -> u8 {
        self.eventually("there is a leader", || async {
            let known = self.known(reader).await?;
            let leader = known.members.get(&known.leader?)?;
            (0..9).find(|number| leader.is_at(&self.peer_url(*number)))
        })
        .await
    }

    /// Waits for something, bounded.
    pub(super) async fn eventually<T, F, Fut>(&self, what: &str, mut ask: F) -> T
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Option<T>>,
    {
        let asking = async {
            loop {
                if let Some(answer) = ask().await {
                    return answer;
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        match tokio::time::timeout(LIMIT, asking).await {
            Ok(answer) => answer,
            Err(late) => panic!("etcd {}: {late}: {what}", self.version()),
        }
    }

    /// Asks again while etcd asks for patience, and where a connection fails.
    pub(super) async fn patiently<T, F, Fut>(&self, what: &str, mut ask: F) -> T
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<T, Error>>,
    {
        let asking = || {
            let asked = ask();
            async move {
                match asked.await {
                    Ok(done) => Some(done),
                    Err(error) if matches!(error.class(), Class::Waiting | Class::Transient) => None,
                    Err(error) => panic!("{what}: {error}"),
                }
            }
        };
        self.eventually(what, asking).await
    }

    /// Waits for a process to end, and with what.
    pub(super) async fn ends(&self, number: u8) -> i32 {
        self.eventually("a process ends", || async { self.exit_code(number) })
            .await
    }

    /// Lets five seconds pass, which etcd wants members to have been connected for.
    pub(super) async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(5500)).await;
    }

    /// Writes a key, and again until it is acknowledged.
    pub(super) async fn write(&self, number: u8, key: &str, value: &str) {
        let written = || async { self.put(number, key, value).await.then_some(()) };
        self.eventually("a write is acknowledged", written).await;
    }
}

/// The model as such a place.
pub struct ModelBed {
    /// The model.
    pub etcds: Etcds,
    version: Version,
    dialer: crate::etcd::Dialer,
    members: Mutex<BTreeMap<u8, Place>>,
}

#[derive(Clone)]
struct Place {
    disk: DiskId,
    process: Option<ProcessId>,
    saved: Content,
}

impl ModelBed {
    /// Members of this version in a model of their own.
    pub fn new(version: Version, seed: u64) -> Self {
        let etcds = Etcds::new(seed);
        let dialer = etcds.dialer(Caller::free("case"));
        Self {
            etcds,
            version,
            dialer,
            members: Mutex::default(),
        }
    }

    fn places(&self) -> MutexGuard<'_, BTreeMap<u8, Place>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, number: u8) -> Place {
        let new = || Place {
            disk: self.etcds.disk(),
            process: None,
            saved: Content::default(),
        };
        self.places().entry(number).or_insert_with(new).clone()
    }

    fn client(&self, number: u8) -> Client {
        let caller = Caller::free("case");
        Client::new(&self.etcds, caller, self.client_url(number), Limits::default())
    }
}

impl Bed for ModelBed {
    fn version(&self) -> Version {
        self.version.clone()
    }

    fn peer_url(&self, number: u8) -> PeerUrl {
        format!("http://c-{number}:2380").parse().expect("a URL")
    }

    fn client_url(&self, number: u8) -> ClientUrl {
        format!("http://c-{number}:2379").parse().expect("a URL")
    }

    fn next_minor(&self) -> Version {
        let next = Minor::ALL
            .into_iter()
            .find(|minor| Some(*minor) > Minor::of(&self.version));
        Version::of(next.expect("there is a newer minor"), 16)
    }

    fn start_on(&self, number: u8, version: &Version, first: Option<First>) {
        let mut place = self.place(number);
        let name = <dyn Bed>::name(number);
        place.process = Some(self.etcds.start(Start {
            hosts: vec![name.clone()],
            labels: vec![name.clone()],
            disk: place.disk,
            version: version.clone(),
            name,
            peer_url: self.peer_url(number),
            client_url: self.client_url(number),
            first,
            quota: None,
        }));
        self.places().insert(number, place);
    }

    fn kill(&self, number: u8) {
        if let Some(process) = self.place(number).process {
            self.etcds.kill(process);
        }
    }

    fn exit_code(&self, number: u8) -> Option<i32> {
        Some(self.etcds.exit(self.place(number).process?)?.code)
    }

    fn wipe(&self, number: u8) {
        self.etcds.wipe(self.place(number).disk);
    }

    fn save(&self, number: u8) {
        let mut place = self.place(number);
        place.saved = self.etcds.content(place.disk).unwrap_or_default();
        self.places().insert(number, place);
    }

    fn restore(&self, number: u8) {
        let place = self.place(number);
        self.etcds.revert(place.disk, place.saved);
    }

    fn dialer(&self) -> &dyn Dial {
        &self.dialer
    }

    fn put<'a>(&'a self, number: u8, key: &'a str, value: &'a str) -> BoxFuture<'a, bool> {
        Box::pin(async move { self.client(number).put(key, value).await.is_ok() })
    }

    fn get<'a>(&'a self, number: u8, key: &'a str) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move { self.client(number).get(key).await.ok()?.1 })
    }
}
