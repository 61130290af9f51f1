//! Counters of a cache as programs read them: one declaration for each, from which its key in JSON, its metric and its
//! field in C follow.

/// Declarations of the counters, handed to the macro `$then` by groups of the JSON. Behind each group stands what the
/// caller adds to it, in braces.
///
/// A declaration has the key in JSON and its type, the way to the value from [`CacheStats`](crate::CacheStats), a text,
/// and the field in C and the metric if there are such. A metric has its part of the page of metrics, its name, the
/// label by which its counters differ, and a text if that of its first counter does not do. An empty label stands for
/// the tier. The order is that of JSON. In the metrics it is that of the parts, and this one within a part.
#[macro_export]
macro_rules! counters {
    ($then:ident $requests:tt $cache_device:tt $backing:tt) => {
        $then! {
            /// Page requests and what the policy did with them.
            requests: Requests {
                reads: u64 = |s| s.counts.reads, "Reads.", c(reads),
                    metric(Asked "entresol_requests_total" {op "read"} "Page requests.");
                read_hits: u64 = |s| s.counts.read_hits, "Reads found in some tier.", c(read_hits),
                    metric(Found "entresol_hits_total" {op "read"} "Page requests whose page was in some tier.");
                writes: u64 = |s| s.counts.writes, "Writes, whole or partial.", c(writes),
                    metric(Asked "entresol_requests_total" {op "write"});
                write_hits: u64 = |s| s.counts.write_hits, "Writes whose page was in some tier.", c(write_hits),
                    metric(Found "entresol_hits_total" {op "write"});
                tier_hits: Vec<u64> = |s| s.counts.tier_hits.to_vec(), "Page requests whose page was in this tier.",
                    metric(Found "entresol_tier_hits_total" {tier ""});
                fetches: u64 = |s| s.counts.fetches, "Pages that misses asked of the backing store.", c(fetches),
                    metric(Moved "entresol_fetches_total");
                admissions: u64 = |s| s.counts.admissions, "Misses whose page was admitted.", c(admissions),
                    metric(Moved "entresol_admissions_total");
                admissions_failed: u64 = |s| s.counts.admissions_failed,
                    "Pages that should have been kept but could not be.",
                    metric(Moved "entresol_admissions_failed_total");
                bypasses: u64 = |s| s.counts.bypasses,
                    "Requests that bypassed the cache, by the policy's decision or as part of a long sequential stream.",
                    c(bypasses), metric(Past "entresol_bypasses_total");
                #[serde(default)]
                passed: u64 = |s| s.counts.passed, "Requests of long sequential streams, which the policy did not see.",
                    metric(Past "entresol_passed_total");
                around: u64 = |s| s.counts.around, "Writes that the mode sent past the policy.",
                    metric(Past "entresol_around_total");
                write_backs: u64 = |s| s.counts.write_backs, "Pages that the policy wrote back; none but in write-back mode.", c(write_backs),
                    metric(WrittenBack "entresol_write_backs_total");
                write_back_ios: u64 = |s| s.counts.write_back_ios, "I/Os that the policy planned for its write-backs.",
                    metric(WrittenBack "entresol_write_back_ios_total");
                directory_full: u64 = |s| s.counts.directory_full, "Requests that the policy could not be told of.",
                    metric(Past "entresol_directory_full_total");
                #[serde(default)]
                hits_dropped: u64 = |s| s.hits_dropped,
                    "Hits of which the policy never heard, because too many came while another request held the decision lock.",
                    metric(Past "entresol_hits_dropped_total");
                #[serde(default)]
                placed: u64 = |s| s.counts.placed,
                    "Pages that were fetched without a request, as the policy holds their objects whole.",
                    metric(Moved "entresol_placed_pages_total");
            } $requests
            /// I/O on the cache device.
            cache_device: CacheDevice {
                writes: u64 = |s| s.store.batches, "Batches written.", c(cache_writes);
                written_bytes: u64 = |s| s.store.blocks * u64::from(s.page_bytes),
                    "Bytes written to the cache device.", c(cache_written_bytes),
                    metric(CacheDevice "entresol_cache_written_bytes_total");
                written_pages: u64 = |s| s.store.pages, "Pages written to the cache device.",
                    metric(CacheDevice "entresol_cache_written_pages_total");
                syncs: u64 = |s| s.store.syncs, "Syncs.", c(cache_syncs);
                read_pages: u64 = |s| s.store.reads, "Pages read.";
                copied_pages: u64 = |s| s.write_back.copied, "Pages that reclaim wrote to the cache device again.",
                    metric(CacheDevice "entresol_cache_copied_pages_total");
                segments_reclaimed: u64 = |s| s.write_back.segments_reclaimed,
                    "Segments of the cache device that were reclaimed.",
                    metric(CacheDevice "entresol_cache_segments_reclaimed_total");
                clean_copies_bad: u64 = |s| s.write_back.clean_copies_bad,
                    "Clean pages of the cache device that were damaged and read from below instead.",
                    metric(CacheDevice "entresol_cache_clean_copies_bad_total");
            } $cache_device
            /// I/O on the backing store.
            backing: Backing {
                writes: u64 = |s| s.write_back.below_ios, "Writes.", c(backing_writes);
                written_pages: u64 = |s| s.write_back.below_pages,
                    "Pages written to the backing store.", c(backing_written_pages),
                    metric(Backing "entresol_backing_written_pages_total");
                syncs: u64 = |s| s.write_back.below_syncs, "Syncs.", c(backing_syncs);
                read_pages: u64 = |s| s.write_back.below_reads, "Pages read from the backing store.", c(backing_reads),
                    metric(Backing "entresol_backing_read_pages_total");
                #[serde(rename = "rescued_pages")]
                evicted_dirty_pages: u64 = |s| s.write_back.evicted_dirty,
                    "Pages that reclaim had to write to the backing store.",
                    metric(EvictedDirty "entresol_backing_rescued_pages_total");
            } $backing
        }
    };
}
