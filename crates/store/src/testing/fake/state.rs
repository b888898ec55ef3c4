//! What the fake holds and what it was told to do wrong. No HTTP here.

use std::collections::BTreeMap;

use crate::clock;
use crate::testing::{Harm, Phase, Times};
use bytes::Bytes;
use jiff::Timestamp;

/// The time, as servers have it.
pub fn now() -> Timestamp {
    clock::now()
}

/// The protocol it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Amazon's.
    S3,
    /// Alibaba's, which checks every signature.
    Oss,
    /// Google's.
    Gcs,
    /// Azure's.
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
    pub begun: Timestamp,
    /// By number, or by block where the protocol has blocks.
    pub parts: BTreeMap<String, Bytes>,
    /// Made of its parts, and not shown yet.
    pub late: Option<Bytes>,
}

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Begin,
    Part(u32),
    Complete,
    Head,
    Other,
}

/// What a store may do that it should not; stores of each kind exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quirk {
    /// Writes that must not replace anything do.
    IgnoresConditions,
    /// Ranges are answered with the whole object.
    IgnoresRanges,
    /// Every page of a list says that the first page comes next.
    RepeatsPages,
    /// Objects may be looked at and not read.
    RefusesReads,
    /// The first completion gets no answer and is done only after all others were refused.
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
    /// How often each path was asked for, for tests that count.
    pub requests: Vec<String>,
    /// Bytes after which every answer with an object breaks off.
    pub breaks_after: Option<usize>,
    /// Writes the next object in one piece and does not say so.
    pub lose_next_create: bool,
    pub quirk: Option<Quirk>,
    plan: Option<(Phase, Harm, Times)>,
    is_completed: bool,
    happened: usize,
    drawn: u64,
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
            breaks_after: None,
            lose_next_create: false,
            quirk: None,
            plan: None,
            is_completed: false,
            happened: 0,
            drawn: 0,
        }
    }

    pub fn plan(&mut self, phase: Phase, harm: Harm, times: Times) {
        self.plan = Some((phase, harm, times));
        self.is_completed = false;
        self.happened = 0;
    }

    pub fn calm(&mut self) {
        self.plan = None;
    }

    pub fn happened(&self) -> usize {
        self.happened
    }

    /// Whether this request goes wrong, and how.
    pub fn turn(&mut self, asked: Asked) -> Option<Harm> {
        let (phase, harm, times) = self.plan?;
        let is_now = match (phase, asked) {
            // Blocks need no beginning: the first that is asked is whether the object is there.
            (Phase::Begin, Asked::Head) => self.dialect == Dialect::Abs && !self.is_completed,
            (Phase::Begin, Asked::Begin)
            | (Phase::FirstPart, Asked::Part(1))
            | (Phase::Complete, Asked::Complete) => true,
            (Phase::LastPart(last), Asked::Part(number)) => last == number,
            (Phase::AfterComplete, Asked::Head) => self.is_completed,
            _ => false,
        };
        if !is_now || (times == Times::Once && self.happened > 0) {
            return None;
        }
        self.happened += 1;
        Some(harm)
    }

    pub fn has(&self, quirk: Quirk) -> bool {
        self.quirk == Some(quirk)
    }

    pub fn draw(&mut self) -> String {
        self.drawn += 1;
        format!("id-{:08}", self.drawn)
    }

    pub fn put(&mut self, key: &str, bytes: Bytes, mark: Option<String>) -> String {
        let etag = format!("\"{}\"", self.draw());
        let object = Object {
            bytes,
            etag: etag.clone(),
            mark,
            modified: now(),
        };
        self.objects.insert(key.to_owned(), object);
        etag
    }

    pub fn completed(&mut self) {
        self.completions += 1;
        self.is_completed = true;
    }
}
