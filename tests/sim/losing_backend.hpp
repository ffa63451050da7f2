// SPDX-License-Identifier: Apache-2.0
// A file system that loses what was written unstably and not committed, as a server does that loses its power
// (RFC 1813 4.8): the bytes are those of the last COMMIT again, and the write verifier is another.
#pragma once

#include <verbena/protocols/storage/forwarding_backend.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace verbena::sim {

/// Everything but WRITE, COMMIT and the verifier is that of the file system beneath. Some of its WRITEs are cut short.
class losing_backend final : public storage::forwarding_backend {
public:
    explicit losing_backend(storage::file_backend& beneath)
        : forwarding_backend(beneath, storage::filter_bytes::are_those_below)
    {
    }

    /// Loses what is not committed.
    task<void> crash()
    {
        ++crashes_;
        const storage::request root = by_root();
        for (auto& [name, f] : files_) {
            auto attrs = co_await below().getattr(root, f.handle);
            lost_ += attrs && attrs->size > f.committed.size() ? attrs->size - f.committed.size() : 0;
            storage::set_attributes cut;
            cut.size = 0;
            auto done = co_await below().setattr(root, f.handle, cut, std::nullopt);
            if (!done) // removed
                continue;
            const std::span<const std::byte> bytes(f.committed);
            auto written =
                co_await below().write(root, f.handle, 0, std::span(&bytes, 1), storage::stability::unstable);
            (void)written;
        }
    }
    /// Crashes before the WRITE that comes after `n` others.
    void crash_after(unsigned n) { writes_left_ = n + 1; }
    std::uint64_t crashes() const noexcept { return crashes_; }
    /// Octets that were there and are no more.
    std::uint64_t lost() const noexcept { return lost_; }

    std::uint64_t write_verifier() const noexcept override { return below().write_verifier() + crashes_; }

    task<result<storage::write_result>> write(const storage::request& r, const storage::handle& file,
                                              std::uint64_t offset,
                                              std::span<const std::span<const std::byte>> pieces,
                                              storage::stability wanted) override
    {
        if (writes_left_ != 0 && --writes_left_ == 0)
            co_await crash();
        files_[key(file)].handle = file;
        // Every third is cut short, as a disk may that fills up.
        std::span<const std::byte> part;
        if (++writes_ % 3 == 0 && pieces.front().size() > 1) {
            part = pieces.front().first(pieces.front().size() / 2);
            pieces = std::span(&part, 1);
        }
        auto done = co_await below().write(r, file, offset, pieces, wanted);
        if (done && wanted != storage::stability::unstable)
            co_await keep(file);
        co_return std::move(done);
    }
    // A size is on stable storage when it is answered.
    task<result<storage::change>> setattr(const storage::request& r, const storage::handle& file,
                                          const storage::set_attributes& set,
                                          std::optional<storage::file_time> guard) override
    {
        auto done = co_await below().setattr(r, file, set, guard);
        if (done && set.size && files_.contains(key(file)))
            co_await keep(file);
        co_return std::move(done);
    }
    task<result<storage::change>> commit(const storage::request& r, const storage::handle& file,
                                         std::uint64_t offset, std::uint32_t count) override
    {
        auto done = co_await below().commit(r, file, offset, count);
        if (done)
            co_await keep(file);
        co_return std::move(done);
    }

private:
    struct file {
        storage::handle handle;
        std::vector<std::byte> committed;
    };
    static std::vector<std::byte> key(const storage::handle& h)
    {
        return {h.bytes().begin(), h.bytes().end()};
    }
    static storage::request by_root()
    {
        storage::request r;
        r.who = storage::credential(0, 0);
        return r;
    }
    task<void> keep(storage::handle h)
    {
        const storage::request root = by_root();
        file& f = files_[key(h)];
        f.handle = h;
        auto attrs = co_await below().getattr(root, h);
        if (!attrs)
            co_return;
        std::vector<std::byte> content(static_cast<std::size_t>(attrs->size));
        auto got = co_await below().read(root, h, 0, content);
        if (got)
            f.committed = std::move(content);
    }

    std::map<std::vector<std::byte>, file> files_;
    std::uint64_t crashes_ = 0;
    std::uint64_t lost_ = 0;
    std::uint64_t writes_ = 0;
    unsigned writes_left_ = 0;
};

} // namespace verbena::sim
