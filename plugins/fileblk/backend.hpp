// SPDX-License-Identifier: Apache-2.0
// The fileblk back end.
#pragma once

#include "disk_file.hpp"
#include "transfers.hpp"

#include <verbena/protocols/storage/sync_group.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace verbena::fileblk {

class backend final : public fileblk_device {
public:
    /// Reads by the page cache that missed it and that a shard may have under way; more go to the lane from the start.
    static constexpr unsigned max_misses = 32;
    /// What of such a read goes by the ring.
    static constexpr std::size_t max_ring_read = std::size_t(64) << 10;
    /// Of memory through which what isn't aligned is copied.
    static constexpr std::size_t max_copied = std::size_t(1) << 20;

    backend(const fileblk_options& o, disk_file file, blocking_pool& lane,
            std::unique_ptr<transfers> by_ring);

    std::string_view kind() const noexcept override { return "fileblk"; }
    storage::block_properties properties() const noexcept override
    {
        storage::block_properties now = properties_;
        now.size = size_.load(std::memory_order_relaxed);
        return now;
    }
    result<std::uint64_t> size_there() override;
    void serve_size(std::uint64_t bytes) noexcept override;
    fileblk_counters counters() const noexcept override;
    std::string notes() const override;

    task<result<void>> read(std::uint64_t offset, std::span<std::byte> into) override;
    task<result<void>> write(std::uint64_t offset, std::span<const std::byte> from, bool through) override;
    task<result<void>> flush() override;
    task<result<void>> discard(std::uint64_t offset, std::uint64_t length) override;
    task<result<void>> write_zeroes(std::uint64_t offset, std::uint64_t length, bool keep) override;

private:
    // How far a transfer has come.
    struct progress {
        std::size_t done = 0;
        int failed = 0;      // errno
        bool is_cut = false; // it failed, since the file ends there
    };
    static error read_failure(std::uint64_t offset, const progress& p) noexcept;

    /// check_range(), of the size that is served now.
    result<void> may(std::uint64_t offset, std::uint64_t length, bool change) const noexcept;
    bool is_aligned(const void* memory) const noexcept;
    task<result<void>> read_by_ring(std::uint64_t offset, std::span<std::byte> into);
    task<result<void>> read_page_cache(std::uint64_t offset, std::span<std::byte> into);
    task<result<void>> read_by_lane(std::uint64_t offset, std::span<std::byte> into);
    task<result<void>> write_by_ring(std::uint64_t offset, std::span<const std::byte> from, bool through);
    task<result<void>> read_copied(std::uint64_t offset, std::span<std::byte> into);
    task<result<void>> write_copied(std::uint64_t offset, std::span<const std::byte> from, bool through);
    progress read_here(std::uint64_t offset, std::span<std::byte> into) const noexcept;
    progress write_here(std::uint64_t offset, std::span<const std::byte> from, bool through) const noexcept;
    // The part of `n` bytes, of a transfer that was to bring `wanted`, behind which it can be continued.
    std::size_t whole_part(std::size_t n, std::size_t wanted) const noexcept;
    result<void> synced() noexcept;
    bool has_lost() const noexcept { return syncs_.failures() != 0; }
    bool failed_through(const error& why) noexcept;
    task<void> mark_loss();
    // Whether its name still leads to the file: said once. Waits for no disk.
    void look_for_name() noexcept;

    int discard_here(std::uint64_t offset, std::uint64_t length) const noexcept;
    int zero_here(std::uint64_t offset, std::uint64_t length, bool keep) noexcept;
    int write_zeros_here(std::uint64_t offset, std::uint64_t length) const noexcept;

    const disk_file file_;
    const storage::block_properties properties_; // as it was opened: its size is size_
    std::atomic<std::uint64_t> size_;
    std::atomic<std::uint64_t> largest_; // that it had
    blocking_pool& lane_;
    const std::unique_ptr<transfers> by_ring_;
    storage::sync_group syncs_;
    std::atomic<bool> loss_told_{false};
    std::atomic<bool> loss_marked_{false}; // the file has it
    std::atomic<bool> unmarked_told_{false};
    std::atomic<bool> nameless_told_{false};
    std::atomic<bool> nowait_works_{true}; // preadv2(RWF_NOWAIT)
    std::atomic<bool> punch_works_{true};  // that a hole reads as zeros
    std::atomic<bool> zero_works_{true};   // FALLOC_FL_ZERO_RANGE
    std::atomic<unsigned> misses_{0};
    std::atomic<std::uint64_t> direct_{0};
    std::atomic<std::uint64_t> copied_{0};
    std::atomic<std::uint64_t> page_cache_{0};
    const std::string path_;
};

} // namespace verbena::fileblk
