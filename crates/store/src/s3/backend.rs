//! Implements the backend interface for S3.

use bytes::Bytes;

use super::S3;
use crate::key::Key;
use crate::port::{
    Answer, Begun, Entry, Etag, Mark, Meta, Page, Part, Place, Port, Reading, Span, Target, UploadId,
};

impl Port for S3 {
    fn place(&self) -> &Place {
        &self.place
    }

    fn begin<'a>(&'a self, key: &'a Key, mark: &'a Mark) -> Answer<'a, UploadId> {
        Box::pin(self.begin_upload(key, mark))
    }

    fn part<'a>(&'a self, target: &'a Target, number: u32, body: Bytes) -> Answer<'a, Part> {
        Box::pin(self.upload_part(target, number, body))
    }

    fn complete<'a>(&'a self, target: &'a Target, parts: &'a [Part]) -> Answer<'a, ()> {
        Box::pin(self.complete_upload(target, parts))
    }

    fn abort<'a>(&'a self, target: &'a Target) -> Answer<'a, ()> {
        Box::pin(self.abort_upload(target))
    }

    fn head<'a>(&'a self, key: &'a Key) -> Answer<'a, Meta> {
        Box::pin(self.head_object(key))
    }

    fn read<'a>(&'a self, key: &'a Key, span: Span, etag: Option<&'a Etag>) -> Answer<'a, Reading> {
        Box::pin(self.read_object(key, span, etag))
    }

    fn list<'a>(&'a self, prefix: &'a str, page: Option<&'a str>) -> Answer<'a, Page<Entry>> {
        Box::pin(self.list_objects(prefix, page))
    }

    fn delete<'a>(&'a self, key: &'a Key) -> Answer<'a, ()> {
        Box::pin(self.delete_object(key))
    }

    fn create<'a>(&'a self, key: &'a Key, body: Bytes) -> Answer<'a, ()> {
        Box::pin(self.create_object(key, body))
    }

    fn begun<'a>(&'a self, prefix: &'a str, page: Option<&'a str>) -> Answer<'a, Page<Begun>> {
        Box::pin(self.list_uploads(prefix, page))
    }
}
