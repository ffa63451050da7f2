// SPDX-License-Identifier: Apache-2.0
// A file system that loses what was written unstably and not committed, as a server does that loses its power
// (RFC 1813 4.8): the bytes are those of the last COMMIT again, and the write verifier is another.
#pragma once

#include <verbena/protocols/storage/file_backend.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace verbena::sim {

/// Everything but WRITE, COMMIT and the verifier is that of the file system beneath. Some of its WRITEs are cut short.
class losing_backend final : public storage::file_backend {
public:
    explicit losing_backend(storage::file_backend& beneath) : beneath_(beneath) {}

    /// Loses what is not committed.
    task<void> crash()
    {
        ++crashes_;
        const storage::request root = by_root();
        for (auto& [name, f] : files_) {
            auto attrs = co_await beneath_.getattr(root, f.handle);
            lost_ += attrs && attrs->size > f.committed.size() ? attrs->size - f.committed.size() : 0;
            storage::set_attributes cut;
            cut.size = 0;
            auto done = co_await beneath_.setattr(root, f.handle, cut, std::nullopt);
            if (!done) // removed
                continue;
            const std::span<const std::byte> bytes(f.committed);
            auto written = co_await beneath_.write(root, f.handle, 0, std::span(&bytes, 1),
                                                   storage::stability::unstable);
            (void)written;
        }
    }
    /// Crashes before the WRITE that comes after `n` others.
    void crash_after(unsigned n) { writes_left_ = n + 1; }
    std::uint64_t crashes() const noexcept { return crashes_; }
    /// Octets that were there and are no more.
    std::uint64_t lost() const noexcept { return lost_; }

    std::string_view kind() const noexcept override { return beneath_.kind(); }
    const storage::filesystem_info& info() const noexcept override { return beneath_.info(); }
    storage::handle root() const noexcept override { return beneath_.root(); }
    std::uint64_t write_verifier() const noexcept override { return beneath_.write_verifier() + crashes_; }

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
        auto done = co_await beneath_.write(r, file, offset, pieces, wanted);
        if (done && wanted != storage::stability::unstable)
            co_await keep(file);
        co_return std::move(done);
    }
    task<result<storage::change>> commit(const storage::request& r, const storage::handle& file,
                                         std::uint64_t offset, std::uint32_t count) override
    {
        auto done = co_await beneath_.commit(r, file, offset, count);
        if (done)
            co_await keep(file);
        co_return std::move(done);
    }

    task<result<storage::attributes>> getattr(const storage::request& r, const storage::handle& file) override
    {
        return beneath_.getattr(r, file);
    }
    task<result<storage::change>> setattr(const storage::request& r, const storage::handle& file,
                                          const storage::set_attributes& set,
                                          std::optional<storage::file_time> guard) override
    {
        return beneath_.setattr(r, file, set, guard);
    }
    task<result<storage::lookup_result>> lookup(const storage::request& r, const storage::handle& directory,
                                                std::string_view name) override
    {
        return beneath_.lookup(r, directory, name);
    }
    task<result<unsigned>> access(const storage::request& r, const storage::handle& file,
                                  unsigned wanted) override
    {
        return beneath_.access(r, file, wanted);
    }
    task<result<std::string>> readlink(const storage::request& r, const storage::handle& link) override
    {
        return beneath_.readlink(r, link);
    }
    task<result<storage::read_result>> read(const storage::request& r, const storage::handle& file,
                                            std::uint64_t offset, std::span<std::byte> out) override
    {
        return beneath_.read(r, file, offset, out);
    }
    task<result<storage::create_result>> create(const storage::request& r, const storage::handle& directory,
                                                std::string_view name, storage::create_mode mode,
                                                const storage::set_attributes& set,
                                                std::uint64_t verifier) override
    {
        return beneath_.create(r, directory, name, mode, set, verifier);
    }
    task<result<storage::create_result>> mkdir(const storage::request& r, const storage::handle& directory,
                                               std::string_view name,
                                               const storage::set_attributes& set) override
    {
        return beneath_.mkdir(r, directory, name, set);
    }
    task<result<storage::create_result>> symlink(const storage::request& r, const storage::handle& directory,
                                                 std::string_view name, std::string_view target,
                                                 const storage::set_attributes& set) override
    {
        return beneath_.symlink(r, directory, name, target, set);
    }
    task<result<storage::create_result>> mknod(const storage::request& r, const storage::handle& directory,
                                               std::string_view name, storage::file_type type,
                                               std::uint32_t major, std::uint32_t minor,
                                               const storage::set_attributes& set) override
    {
        return beneath_.mknod(r, directory, name, type, major, minor, set);
    }
    task<result<storage::change>> remove(const storage::request& r, const storage::handle& directory,
                                         std::string_view name) override
    {
        return beneath_.remove(r, directory, name);
    }
    task<result<storage::change>> rmdir(const storage::request& r, const storage::handle& directory,
                                        std::string_view name) override
    {
        return beneath_.rmdir(r, directory, name);
    }
    task<result<storage::rename_result>> rename(const storage::request& r,
                                                const storage::handle& from_directory, std::string_view from,
                                                const storage::handle& to_directory,
                                                std::string_view to) override
    {
        return beneath_.rename(r, from_directory, from, to_directory, to);
    }
    task<result<storage::link_result>> link(const storage::request& r, const storage::handle& file,
                                            const storage::handle& directory, std::string_view name) override
    {
        return beneath_.link(r, file, directory, name);
    }
    task<result<storage::readdir_result>> readdir(const storage::request& r, const storage::handle& directory,
                                                  std::uint64_t cookie, std::uint64_t verifier,
                                                  bool with_attributes,
                                                  storage::directory_sink& sink) override
    {
        return beneath_.readdir(r, directory, cookie, verifier, with_attributes, sink);
    }
    task<result<storage::filesystem_stat>> statfs(const storage::request& r,
                                                  const storage::handle& file) override
    {
        return beneath_.statfs(r, file);
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
        auto attrs = co_await beneath_.getattr(root, h);
        if (!attrs)
            co_return;
        std::vector<std::byte> content(static_cast<std::size_t>(attrs->size));
        auto got = co_await beneath_.read(root, h, 0, content);
        if (got)
            f.committed = std::move(content);
    }

    storage::file_backend& beneath_;
    std::map<std::vector<std::byte>, file> files_;
    std::uint64_t crashes_ = 0;
    std::uint64_t lost_ = 0;
    std::uint64_t writes_ = 0;
    unsigned writes_left_ = 0;
};

} // namespace verbena::sim
