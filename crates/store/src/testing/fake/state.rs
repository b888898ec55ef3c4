//! The state of the fake store and the planned faults. Contains no HTTP.

use std::collections::BTreeMap;

use crate::clock;
use crate::testing::{InjectedFault, Occurrence, UploadPhase};
use bytes::Bytes;
use jiff::Timestamp;

/// The current time of the server.
pub fn now() -> Timestamp {
    clock::now()
}

/// The protocol of the fake store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// S3.
    S3,
    /// OSS. It verifies every signature.
    Oss,
    /// GCS.
    Gcs,
    /// Azure Blob Storage.
    Abs,
}

#[derive(Clone, Debug)]
pub struct Object {
    pub bytes: Bytes,
    pub etag: String,
    pub mark: Option<String>,
    pub modified: Timestamp,
}

#[derive(Clone, Debug, Default)]
pub struct Upload {
    pub key: String,
    pub mark: Option<String>,
    pub begun_at: Timestamp,
    /// The parts by number, or the blocks by ID.
    pub parts: BTreeMap<String, Bytes>,
    /// The assembled object, not yet visible.
    pub pending_object: Option<Bytes>,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    Begin,
    Part(u32),
    Complete,
    Head,
    Other,
}

/// Misbehavior of the store. Real stores exist with each of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quirk {
    /// Conditional writes replace existing objects.
    IgnoresConditions,
    /// Range requests return the whole object.
    IgnoresRanges,
    /// Every page of a listing refers to the first page as the next one.
    RepeatsPages,
    /// Objects can be listed and their metadata read, but their content cannot.
    RefusesReads,
    /// The first completion gets no response. The store executes it only after all other attempts have
    /// failed.
    CompletesLate,
}

#[derive(Debug)]
pub struct State {
    pub dialect: Dialect,
    pub objects: BTreeMap<String, Object>,
    pub uploads: BTreeMap<String, Upload>,
    pub secret: String,
    pub page: usize,
    pub completions: usize,
    /// Every received request, for tests that count them.
    pub requests: Vec<String>,
    /// The number of bytes after which every response with an object breaks off.
    pub truncate_after: Option<usize>,
    /// Executes the next write of an object and drops the connection instead of responding.
    pub drop_next_create_response: bool,
    pub quirk: Option<Quirk>,
    plan: Option<(UploadPhase, InjectedFault, Occurrence)>,
    is_completed: bool,
    happened: usize,
    last_id: u64,
}

impl State {
    pub fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            objects: BTreeMap::new(),
            uploads: BTreeMap::new(),
            secret: "hunter2hunter2".to_owned(),
            page: 7,
            completions: 0,
            requests: Vec::new(),
            truncate_after: None,
            drop_next_create_response: false,
            quirk: None,
            plan: None,
            is_completed: false,
            happened: 0,
            last_id: 0,
        }
    }

    pub fn plan(&mut self, phase: UploadPhase, fault: InjectedFault, times: Occurrence) {
        self.plan = Some((phase, fault, times));
        self.is_completed = false;
        self.happened = 0;
    }

    pub fn clear(&mut self) {
        self.plan = None;
    }

    pub fn injected_count(&self) -> usize {
        self.happened
    }

    /// The fault to inject into this request, if any.
    pub fn next_fault(&mut self, kind: RequestKind) -> Option<InjectedFault> {
        let (phase, fault, times) = self.plan?;
        let is_now = match (phase, kind) {
            // Azure uploads have no begin request. The first request reads the metadata of the object.
            (UploadPhase::Begin, RequestKind::Head) => self.dialect == Dialect::Abs && !self.is_completed,
            (UploadPhase::Begin, RequestKind::Begin)
            | (UploadPhase::FirstPart, RequestKind::Part(1))
            | (UploadPhase::Complete, RequestKind::Complete) => true,
            (UploadPhase::LastPart(last), RequestKind::Part(number)) => last == number,
            (UploadPhase::AfterComplete, RequestKind::Head) => self.is_completed,
            _ => false,
        };
        if !is_now || (times == Occurrence::Once && self.happened > 0) {
            return None;
        }
        self.happened += 1;
        Some(fault)
    }

    pub fn has(&self, quirk: Quirk) -> bool {
        self.quirk == Some(quirk)
    }

    pub fn next_id(&mut self) -> String {
        self.last_id += 1;
        format!("id-{:08}", self.last_id)
    }

    pub fn put(&mut self, key: &str, bytes: Bytes, mark: Option<String>) -> String {
        let etag = format!("\"{}\"", self.next_id());
        let object = Object {
            bytes,
            etag: etag.clone(),
            mark,
            modified: now(),
        };
        self.objects.insert(key.to_owned(), object);
        etag
    }

    pub fn record_completion(&mut self) {
        self.completions += 1;
        self.is_completed = true;
    }
}
