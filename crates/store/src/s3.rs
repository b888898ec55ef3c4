//! S3 and S3-compatible stores, with the AWS SDK. The retries of the SDK are disabled, because
//! [`crate::Store`] retries.

mod backend;
mod connect;
mod profile;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::primitives::{ByteStream, DateTime};
use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart, ServerSideEncryption, StorageClass};
use bytes::Bytes;
use futures::stream;
use jiff::Timestamp;

pub use self::connect::{Encryption, S3Config};
use crate::backend::{
    ByteRange, Etag, ListedObject, ObjectBody, ObjectMetadata, Page, Part, PendingUpload, StoreLocation,
    UnfinishedUpload, UploadId, UploadToken,
};
use crate::digest::content_md5;
use crate::error::{Class, Fault};
use crate::error_codes::{ErrorResponse, is_web_page, retry_after};
use crate::key::Key;
use crate::net;
use crate::secret::Redactor;

/// The metadata key of the upload token.
pub(crate) const MARK: &str = "etcd-operator-upload";

/// Joins the two markers of the next page. No object name contains it.
const MARKER_SEPARATOR: char = '\n';

/// A bucket of S3.
#[derive(Clone, Debug)]
pub struct S3 {
    client: Client,
    location: StoreLocation,
    encryption: Option<ServerSideEncryption>,
    storage_class: Option<StorageClass>,
    /// AWS honors conditional writes. Some compatible stores do not, and some of those ignore the condition
    /// silently.
    supports_conditional_writes: bool,
    redactor: Redactor,
}

impl S3 {
    fn fault<E>(&self, error: &SdkError<E, HttpResponse>) -> Fault
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        let Some(response) = error.raw_response() else {
            return self.no_response_fault(error);
        };
        let header = |name| response.headers().get(name).map(str::to_owned);
        let status = response.status().as_u16();
        let code = error.code().map(str::to_owned);
        let code = code.or_else(|| header("x-amz-error-code")).unwrap_or_default();
        let content_type = header("content-type");
        let body = response.body().bytes().unwrap_or_default();
        if code.is_empty() && is_web_page(status, content_type.as_deref(), body) {
            let content_type = content_type.as_deref().unwrap_or("no Content-Type");
            let detail = format!("HTTP {status} with {content_type}; S3 reports errors as XML");
            return Fault::new(Class::NotAStore, self.redactor.redact(&detail));
        }
        if response.status().is_success() && code.is_empty() {
            // The store confirmed the request, but the body of the response could not be read.
            return net::connection_fault(error, &self.redactor);
        }
        // Responses without a body report another region in this header alone.
        let region = header("x-amz-bucket-region");
        let is_other_region =
            matches!(status, 301 | 307) || (status == 400 && code.is_empty() && region.is_some());
        let error_response = ErrorResponse {
            status,
            code,
            message: error.message().unwrap_or_default().to_owned(),
            region: region.filter(|_| is_other_region),
            retry_after: retry_after(header("retry-after").as_deref()),
        };
        let mut fault = error_response.fault(&self.redactor);
        if is_other_region {
            fault.class = Class::WrongRegion;
        }
        fault
    }

    fn no_response_fault<E>(&self, error: &SdkError<E, HttpResponse>) -> Fault
    where
        E: std::error::Error + 'static,
    {
        let mut fault = net::connection_fault(error, &self.redactor);
        match error {
            SdkError::TimeoutError(_) => fault.class = Class::TimedOut,
            SdkError::ConstructionFailure(_) => fault.class = Class::Unsupported,
            SdkError::DispatchFailure(failure) if failure.is_timeout() => fault.class = Class::TimedOut,
            _ => {}
        }
        if fault.class != Class::Unreachable && net::chain_contains(error, "credential") {
            fault.class = Class::Credentials;
        }
        fault
    }

    async fn begin_upload(&self, key: &Key, mark: &UploadToken) -> Result<UploadId, Fault> {
        let response = self
            .client
            .create_multipart_upload()
            .bucket(&self.location.bucket)
            .key(key.as_str())
            .metadata(MARK, &mark.0)
            .content_type("application/octet-stream")
            .set_server_side_encryption(self.encryption.clone())
            .set_storage_class(self.storage_class.clone())
            .send()
            .await
            .map_err(|error| self.fault(&error))?;
        match response.upload_id {
            Some(id) if !id.is_empty() => Ok(UploadId(id)),
            _ => Err(Fault::new(Class::Corrupt, "the response contains no upload ID")),
        }
    }

    async fn upload_part(&self, target: &PendingUpload, number: u32, body: Bytes) -> Result<Part, Fault> {
        let size = u64::try_from(body.len()).unwrap_or(u64::MAX);
        let md5 = content_md5(&body);
        let response = self
            .client
            .upload_part()
            .bucket(&self.location.bucket)
            .key(target.key.as_str())
            .upload_id(&target.id.0)
            .part_number(i32::try_from(number).unwrap_or(i32::MAX))
            .content_md5(md5)
            .body(ByteStream::from(body))
            .send()
            .await
            .map_err(|error| self.fault(&error))?;
        let tag = response
            .e_tag
            .ok_or_else(|| Fault::new(Class::Corrupt, "the response contains no ETag of the part"))?;
        Ok(Part { number, tag, size })
    }

    async fn complete_upload(&self, target: &PendingUpload, parts: &[Part]) -> Result<(), Fault> {
        let parts = parts.iter().map(|part| {
            CompletedPart::builder()
                .part_number(i32::try_from(part.number).unwrap_or(i32::MAX))
                .e_tag(&part.tag)
                .build()
        });
        let list = CompletedMultipartUpload::builder().set_parts(Some(parts.collect()));
        self.client
            .complete_multipart_upload()
            .bucket(&self.location.bucket)
            .key(target.key.as_str())
            .upload_id(&target.id.0)
            .multipart_upload(list.build())
            .send()
            .await
            .map(|_| ())
            .map_err(|error| self.fault(&error))
    }

    async fn abort_upload(&self, target: &PendingUpload) -> Result<(), Fault> {
        self.client
            .abort_multipart_upload()
            .bucket(&self.location.bucket)
            .key(target.key.as_str())
            .upload_id(&target.id.0)
            .send()
            .await
            .map(|_| ())
            .map_err(|error| self.fault(&error))
    }

    /// Reads the metadata of an object. HEAD responses have no body, so 404 may also mean a missing bucket or
    /// user. A GET request tells what is missing.
    async fn head_object(&self, key: &Key) -> Result<ObjectMetadata, Fault> {
        match self.head_once(key).await {
            Err(missing) if missing.class == Class::NotFound => {
                let first = ByteRange { from: 0, to: Some(1) };
                self.read_object(key, first, None).await?;
                // The object appeared in the meantime.
                self.head_once(key).await
            }
            known => known,
        }
    }

    async fn head_once(&self, key: &Key) -> Result<ObjectMetadata, Fault> {
        let head = self
            .client
            .head_object()
            .bucket(&self.location.bucket)
            .key(key.as_str())
            .send()
            .await
            .map_err(|error| self.fault(&error))?;
        let mark = head.metadata().and_then(|metadata| metadata.get(MARK)).cloned();
        Ok(ObjectMetadata {
            size: parse_size(head.content_length())?,
            etag: parse_etag(head.e_tag())?,
            mark: mark.map(UploadToken),
            modified: head.last_modified().and_then(to_timestamp),
        })
    }

    async fn read_object(
        &self,
        key: &Key,
        range: ByteRange,
        wanted: Option<&Etag>,
    ) -> Result<ObjectBody, Fault> {
        let read = self
            .client
            .get_object()
            .bucket(&self.location.bucket)
            .key(key.as_str())
            .set_range(range.header())
            .set_if_match(wanted.map(|etag| etag.0.clone()))
            .send()
            .await
            .map_err(|error| match self.fault(&error) {
                fault if fault.class == Class::Exists => Fault {
                    class: Class::Changed,
                    ..fault
                },
                fault => fault,
            })?;
        if range.header().is_some() && read.content_range().is_none() {
            let detail = "the store sends the whole object instead of the range";
            return Err(Fault::new(Class::Corrupt, detail));
        }
        let (etag, length) = (parse_etag(read.e_tag())?, parse_size(read.content_length())?);
        let redactor = self.redactor.clone();
        let body = stream::try_unfold((read.body, redactor), |(mut body, redactor)| async move {
            match body.next().await {
                None => Ok(None),
                Some(Ok(bytes)) => Ok(Some((bytes, (body, redactor)))),
                Some(Err(error)) => Err(net::connection_fault(&error, &redactor)),
            }
        });
        Ok(ObjectBody {
            etag,
            length,
            body: Box::pin(body),
        })
    }

    async fn list_objects(&self, prefix: &str, page: Option<&str>) -> Result<Page<ListedObject>, Fault> {
        let listed = self
            .client
            .list_objects_v2()
            .bucket(&self.location.bucket)
            .prefix(prefix)
            .set_continuation_token(page.map(str::to_owned))
            .send()
            .await
            .map_err(|error| self.fault(&error))?;
        let next = listed.next_continuation_token().map(str::to_owned);
        let next = next.filter(|_| listed.is_truncated() == Some(true));
        let items = listed.contents().iter().filter_map(|object| {
            Some(ListedObject {
                name: object.key()?.to_owned(),
                size: parse_size(object.size()).ok()?,
                modified: object.last_modified().and_then(to_timestamp),
            })
        });
        Ok(Page {
            items: items.collect(),
            next,
        })
    }

    async fn delete_object(&self, key: &Key) -> Result<(), Fault> {
        self.client
            .delete_object()
            .bucket(&self.location.bucket)
            .key(key.as_str())
            .send()
            .await
            .map(|_| ())
            .map_err(|error| self.fault(&error))
    }

    async fn put_object(&self, key: &Key, body: Bytes, only_if_absent: bool) -> Result<(), Fault> {
        let md5 = content_md5(&body);
        self.client
            .put_object()
            .bucket(&self.location.bucket)
            .key(key.as_str())
            .set_if_none_match(only_if_absent.then(|| "*".to_owned()))
            .content_md5(md5)
            .set_server_side_encryption(self.encryption.clone())
            .body(ByteStream::from(body))
            .send()
            .await
            .map(|_| ())
            .map_err(|error| self.fault(&error))
    }

    async fn create_object(&self, key: &Key, body: Bytes) -> Result<(), Fault> {
        if !self.supports_conditional_writes {
            match self.check_absent(key).await {
                // An identity that may write but not read metadata relies on the conditional write alone.
                Err(fault) if fault.class == Class::Forbidden => {}
                result => result?,
            }
        }
        match self.put_object(key, body.clone(), true).await {
            // The store rejects conditional writes. A check before the write is the best it offers.
            Err(fault) if fault.class == Class::Unsupported => {
                self.check_absent(key).await?;
                self.put_object(key, body, false).await
            }
            other => other,
        }
    }

    async fn check_absent(&self, key: &Key) -> Result<(), Fault> {
        match self.head_object(key).await {
            Ok(_) => Err(Fault::new(Class::Exists, "the object exists")),
            Err(missing) if missing.class == Class::NotFound => Ok(()),
            Err(other) => Err(other),
        }
    }

    async fn list_uploads(&self, prefix: &str, page: Option<&str>) -> Result<Page<UnfinishedUpload>, Fault> {
        let (key, id) = page.and_then(|page| page.split_once(MARKER_SEPARATOR)).unzip();
        let listed = self
            .client
            .list_multipart_uploads()
            .bucket(&self.location.bucket)
            .prefix(prefix)
            .set_key_marker(key.map(str::to_owned))
            .set_upload_id_marker(id.map(str::to_owned))
            .send()
            .await
            .map_err(|error| self.fault(&error))?;
        let items = listed.uploads().iter().filter_map(|upload| {
            Some(UnfinishedUpload {
                name: upload.key()?.to_owned(),
                id: UploadId(upload.upload_id()?.to_owned()),
                began_at: upload.initiated().and_then(to_timestamp)?,
            })
        });
        let next = (listed.is_truncated() == Some(true)).then(|| {
            let (key, id) = (listed.next_key_marker(), listed.next_upload_id_marker());
            format!(
                "{}{MARKER_SEPARATOR}{}",
                key.unwrap_or_default(),
                id.unwrap_or_default()
            )
        });
        Ok(Page {
            items: items.collect(),
            next,
        })
    }
}

fn parse_size(length: Option<i64>) -> Result<u64, Fault> {
    length
        .and_then(|length| u64::try_from(length).ok())
        .ok_or_else(|| Fault::new(Class::Corrupt, "the response contains no size of the object"))
}

fn parse_etag(etag: Option<&str>) -> Result<Etag, Fault> {
    etag.map(|etag| Etag(etag.to_owned()))
        .ok_or_else(|| Fault::new(Class::Corrupt, "the response contains no ETag of the object"))
}

fn to_timestamp(time: &DateTime) -> Option<Timestamp> {
    Timestamp::new(time.secs(), i32::try_from(time.subsec_nanos()).ok()?).ok()
}
