//! What can go wrong with an upload, and when. Only names; who does it is another matter.

/// The moment of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It begins.
    Begin,
    /// The part of number 1.
    FirstPart,
    /// The part of this number, the last one.
    LastPart(u32),
    /// It is completed.
    Complete,
    /// The object is looked at after the completion.
    AfterComplete,
}

impl Phase {
    /// All of them for an upload of so many parts.
    pub fn all(parts: u32) -> [Self; 5] {
        [
            Self::Begin,
            Self::FirstPart,
            Self::LastPart(parts),
            Self::Complete,
            Self::AfterComplete,
        ]
    }
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Harm {
    /// The store answers with an internal error.
    Internal,
    /// The store asks for fewer requests.
    Throttled,
    /// The store never answers.
    Slow,
    /// The connection breaks while the body is sent; nothing was done.
    Broken,
    /// It is done, and the connection breaks before the answer.
    LostAnswer,
    /// The credentials are valid no more.
    Expired,
    /// The bucket is in another region.
    WrongRegion,
    /// The identity may not do this.
    Forbidden,
    /// The bucket is gone.
    NoBucket,
    /// No room is left.
    Full,
}

impl Harm {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Internal,
        Self::Throttled,
        Self::Slow,
        Self::Broken,
        Self::LostAnswer,
        Self::Expired,
        Self::WrongRegion,
        Self::Forbidden,
        Self::NoBucket,
        Self::Full,
    ];

    /// Whether trying again helps once it is over.
    pub fn passes(self) -> bool {
        matches!(
            self,
            Self::Internal | Self::Throttled | Self::Slow | Self::Broken | Self::LostAnswer
        )
    }
}

/// How often it goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// The first time only.
    Once,
    /// Every time.
    Always,
}
