//! Implements the backend interface for S3.

use bytes::Bytes;

use super::S3;
use crate::backend::{
    Backend, BackendFuture, ByteRange, Etag, ListedObject, ObjectBody, ObjectMetadata, Page, Part,
    PendingUpload, StoreLocation, UnfinishedUpload, UploadId, UploadToken,
};
use crate::key::Key;

impl Backend for S3 {
    fn location(&self) -> &StoreLocation {
        &self.location
    }

    fn begin<'a>(&'a self, key: &'a Key, mark: &'a UploadToken) -> BackendFuture<'a, UploadId> {
        Box::pin(self.begin_upload(key, mark))
    }

    fn upload_part<'a>(
        &'a self,
        target: &'a PendingUpload,
        number: u32,
        body: Bytes,
    ) -> BackendFuture<'a, Part> {
        Box::pin(Self::upload_part(self, target, number, body))
    }

    fn complete<'a>(&'a self, target: &'a PendingUpload, parts: &'a [Part]) -> BackendFuture<'a, ()> {
        Box::pin(self.complete_upload(target, parts))
    }

    fn abort<'a>(&'a self, target: &'a PendingUpload) -> BackendFuture<'a, ()> {
        Box::pin(self.abort_upload(target))
    }

    fn head<'a>(&'a self, key: &'a Key) -> BackendFuture<'a, ObjectMetadata> {
        Box::pin(self.head_object(key))
    }

    fn read<'a>(
        &'a self,
        key: &'a Key,
        range: ByteRange,
        etag: Option<&'a Etag>,
    ) -> BackendFuture<'a, ObjectBody> {
        Box::pin(self.read_object(key, range, etag))
    }

    fn list<'a>(&'a self, prefix: &'a str, page: Option<&'a str>) -> BackendFuture<'a, Page<ListedObject>> {
        Box::pin(self.list_objects(prefix, page))
    }

    fn delete<'a>(&'a self, key: &'a Key) -> BackendFuture<'a, ()> {
        Box::pin(self.delete_object(key))
    }

    fn create<'a>(&'a self, key: &'a Key, body: Bytes) -> BackendFuture<'a, ()> {
        Box::pin(self.create_object(key, body))
    }

    fn list_uploads<'a>(
        &'a self,
        prefix: &'a str,
        page: Option<&'a str>,
    ) -> BackendFuture<'a, Page<UnfinishedUpload>> {
        Box::pin(Self::list_uploads(self, prefix, page))
    }
}
