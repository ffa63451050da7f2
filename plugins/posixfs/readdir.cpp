// SPDX-License-Identifier: Apache-2.0
// READDIR and READDIRPLUS.
#include "backend.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace verbena::posixfs {

namespace {

// Entries whose attributes are gathered per visit to the pool: a visit costs as much as some ten entries,
// and what the caller has no room for is gathered in vain.
constexpr std::size_t batch_size = 64;

} // namespace

task<result<storage::readdir_result>> backend::readdir(const storage::request& r,
                                                       const storage::handle& directory, std::uint64_t cookie,
                                                       std::uint64_t verifier, bool with_attributes,
                                                       storage::directory_sink& sink)
{
    shard& s = at(co_await this_reactor());
    const std::uint64_t standing = s.standing;
    auto opened = co_await open_directory(s, directory);
    if (!opened)
        co_return opened.error();
    if (cookie != 0 && (verifier != root_now().cookie_verifier || cookie > std::uint64_t(INT64_MAX)))
        co_return error(storage::errc::bad_cookie, "the cookie verifier has changed");
    const file_ref d = std::move(*opened);
    const bool is_root = directory == handles_->root();
    looked st{};
    if (auto live = co_await stat_live(s, *d, d->path.get(), st); !live)
        co_return live.error();

    std::unique_ptr<directory_stream> stream;
    if (cookie != 0) {
        stream = s.streams.take(directory, r.who, cookie);
        if (stream && !stream->unchanged(st))
            stream.reset();
    }
    if (!stream) {
        auto job = [this, fd = d->path.get(), &who = r.who, &st, &directory,
                    cookie]() -> result<std::unique_ptr<directory_stream>> {
            acting_as as(who);
            if (!as)
                return as.error();
            unique_fd listing(::openat(self_.get(), fd_name(fd).text(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
            if (!listing)
                return errno_error("open of a directory");
            return std::make_unique<directory_stream>(directory, who, std::move(listing), st, cookie);
        };
        auto made = co_await run_with_room(s, job);
        if (!made)
            co_return made.error();
        stream = std::move(*made);
    }

    storage::readdir_result out;
    out.verifier = root_now().cookie_verifier;
    std::vector<listed_entry> batch;
    batch.reserve(batch_size);
    bool taken = false;
    bool full = false;
    while (!full && !out.end) {
        auto job = [&]() -> result<bool> {
            batch.clear();
            auto more = stream->fill();
            if (!more || !*more)
                return more;
            if (!with_attributes)
                return true;
            acting_as as(r.who);
            if (!as)
                return as.error();
            stream->look_ahead(batch_size, batch);
            for (listed_entry& e : batch)
                e.gone = !describe_entry(*d, is_root, e);
            return true;
        };
        auto more = co_await pool_.try_run(std::move(job));
        if (!more)
            co_return more.error();
        out.end = !*more;
        std::size_t index = 0;
        while (auto raw = stream->peek()) {
            if (with_attributes && index == batch.size())
                break;
            // Removed or renamed since the kernel listed it (RFC 8881 18.23.3).
            if (with_attributes && batch[index].gone) {
                ++index;
                stream->skip(*raw);
                continue;
            }
            storage::directory_entry e;
            e.fileid = raw->inode;
            e.cookie = raw->cookie;
            e.name = raw->name;
            if (with_attributes) {
                e.attrs = batch[index].attrs;
                e.handle = batch[index].handle;
                ++index;
            }
            // Above the root there is nothing that a client may know of.
            if (is_root && raw->name == "..") {
                e.fileid = handles_->root_stat().st_ino;
            }
            if (!sink.take(e)) {
                full = true;
                break;
            }
            taken = true;
            stream->skip(*raw);
        }
    }
    if (full && !taken)
        co_return error(storage::errc::too_small, "no room for one entry");
    const int failed = co_await stat_of(*d, d->path.get(), st);
    if (failed == 0)
        out.directory = attributes(st, *d);
    if (!out.end && !has_left(standing))
        s.streams.keep(std::move(stream));
    co_return out;
}

bool backend::describe_entry(const cached_file& d, bool is_root, listed_entry& e) const
{
    const bool dot = e.raw.name == "." || (is_root && e.raw.name == "..");
    if (e.raw.name == ".." && !dot)
        return true;
    if (dot) {
        e.attrs = attributes_now(d);
        e.handle = d.handle;
        return true;
    }
    return is_there([&] { return describe_named(d, e); });
}

int backend::describe_named(const cached_file& d, listed_entry& e) const
{
    // By one descriptor, so that attributes and handle are of the same file whatever happens meanwhile.
    // The name is the kernel's own, which ends it with a NUL.
    auto fd = open_name(d.path.get(), e.raw.name.data()); // NOLINT(bugprone-suspicious-stringview-data-usage)
    if (!fd)
        return fd.error().errno_value();
    looked st{};
    const std::uint64_t before = numbers_->now();
    if (file_status(fd->get(), st) != 0)
        return errno;
    const mount_point* mount = nullptr;
    auto handle = handles_->handle_of(fd->get(), st, d.handle, e.raw.name, &mount);
    if (!handle)
        return handle.error().errno_value();
    const numbered_file file{st.st_dev, st.st_ino, mount->local};
    numbers_->look_again(file, fd->get(), st, before);
    e.attrs = attributes_of(st, handles_->fsid_of(fd->get(), st, *mount));
    if (mount->local && root_now().info.birth_times)
        e.attrs->birth = birth_of(fd->get());
    // The listing has the number of the directory that a mount covers.
    if (mount != d.mount || e.attrs->fsid != d.fsid)
        e.attrs->covered_fileid = e.raw.inode;
    e.handle = *handle;
    return 0;
}

} // namespace verbena::posixfs
