// SPDX-License-Identifier: Apache-2.0
#include "copy.hpp"

#include "checksum.hpp"
#include "commands.hpp"
#include "listing.hpp"

#include "../standard_output.hpp"
#include <verbena/core/printable.hpp>

#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/event.hpp>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <unistd.h>
#include <utility>

namespace verbena::cli {
namespace {

const error no_name(std::errc::protocol_error, "the server tells of an entry with a name that is none");
const error into_itself(std::errc::invalid_argument, "a directory can't be copied into itself");

// As sha256sum writes and reads it: a line that begins with a backslash has the name's own, and its ends of line, escaped.
std::string checksum_line(const std::string& digest, const std::string& path)
{
    std::string name;
    for (const char c : path) {
        if (c == '\n' || c == '\r' || c == '\\')
            name += {'\\', c == '\n' ? 'n' : c == '\r' ? 'r' : c};
        else
            name += c;
    }
    if (::isatty(STDOUT_FILENO))
        return digest + "  " + printable(path);
    return (name.size() != path.size() ? "\\" : "") + digest + "  " + name;
}

bool equal(const timespec& a, const timespec& b) noexcept
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

} // namespace

bool same_file(const store& a, const file_info& x, const store& b, const file_info& y)
{
    if (x.kind != y.kind || x.id != y.id)
        return false;
    if (a.place() == b.place()) {
        if (x.file_system != y.file_system) // a snapshot's files are others, with the same numbers and times
            return false;
        if (x.view == y.view)
            return true;
    }
    return x.size == y.size && equal(x.mtime, y.mtime) && equal(x.ctime, y.ctime);
}

namespace {

// Given back also where an exception ends the task that has it.
class held_permit {
public:
    explicit held_permit(semaphore& of) noexcept : of_(of) {}
    held_permit(const held_permit&) = delete;
    ~held_permit() { of_.release(); }

private:
    semaphore& of_;
};

} // namespace

// A file being copied: workers take chunks in order and finish them in any.
struct copier::one_file {
    one_file(open_file& f, open_file& t, std::uint32_t c, std::uint64_t s) : from(f), to(t), chunk(c), size(s)
    {
    }
    open_file& from;
    open_file& to;
    const std::uint32_t chunk;
    const std::uint64_t size; // no more than that is read
    std::uint64_t next = 0;
    std::uint64_t written = 0;        // where the last byte that was written ends
    std::optional<std::uint64_t> end; // where reading found an earlier end
    bool done() const noexcept { return failed || end || next >= size; }
    std::optional<error> failed;
    bool by_source = false; // what failed is a read
    // With checksums, chunks are hashed in order: the turn of the chunk at `hashed`.
    sha256* hash = nullptr;
    std::uint64_t hashed = 0;
    event turn;
};

copier::copier(runtime& r, const copy_options& o)
    : runtime_(r), options_(o), file_permits_(std::clamp(o.files, 1u, max_files))
{
    options_.depth = std::clamp(o.depth, 1u, max_depth);
}

const copier::gone_server* copier::find_gone(const store& a) const
{
    if (gone_.empty())
        return nullptr;
    const auto found = std::ranges::find(gone_, a.server(), &gone_server::name);
    return found == gone_.end() ? nullptr : &*found;
}

void copier::tell_left_out(const std::string& what, std::uint64_t count, const gone_server& server)
{
    totals_.failures += count;
    say(what + " left out, since " + server.name + " failed: " + server.why.message());
}

void copier::fail(const store& where, const std::string& what, const error& why)
{
    ++totals_.failures;
    if (ends_all(why)) {
        over_ = true;
        if (find_gone(where) == nullptr)
            gone_.push_back({where.server(), why});
    }
    const char* clear_progress = ::isatty(STDERR_FILENO) ? "\r\033[K" : "";
    // What root_squash means is told once.
    const bool tell = why == std::errc::permission_denied && !std::exchange(denied_, true);
    std::fprintf(stderr, "%sverbena: %s: %s\n", clear_progress, printable(what).c_str(),
                 (tell ? refusal(why) : why.message()).c_str());
}

void copier::note_checksum(std::string path, std::string digest)
{
    if (options_.quiet)
        checksums_.push_back({std::move(path), std::move(digest)});
    else
        print("%s\n", checksum_line(digest, path).c_str());
}

task<void> copier::copy(store& from, std::string from_path, store& to, std::string to_path)
{
    const std::string name = from.name_of(from_path);
    for (const store* one : {&from, &to}) {
        if (const gone_server* server = find_gone(*one)) {
            tell_left_out(printable(name) + ":", 1, *server);
            co_return;
        }
    }
    scope files(runtime_.shard());
    top_.reset();
    over_ = false;
    left_out_ = 0;
    totals_.counting = true;
    co_await copy_entry(from, std::move(from_path), to, std::move(to_path), files);
    totals_.counting = false;
    co_await files.join();
    if (left_out_ != 0) {
        const gone_server* server = find_gone(from);
        tell_left_out(printable(name) + ": " + std::to_string(left_out_) + " more of it", left_out_,
                      server != nullptr ? *server : *find_gone(to));
    }
    // Children stand behind their parents.
    while (!finish_.empty() && find_gone(to) == nullptr) {
        auto [path, info] = std::move(finish_.back());
        finish_.pop_back();
        if (auto set = co_await to.set_mode_and_times(path, info); !set)
            fail(to, to.name_of(path), set.error());
    }
    finish_.clear();
}

task<void> copier::copy_entry(store& from, std::string from_path, store& to, std::string to_path,
                              scope& files)
{
    // A symbolic link in a tree is copied as one; what the user named is what it leads to.
    auto info = co_await from.stat(from_path, !options_.recursive);
    if (!info) {
        fail(from, from.name_of(from_path), info.error());
        co_return;
    }
    if (info->kind == file_kind::regular) {
        ++totals_.expected_files;
        totals_.expected_bytes += std::min(info->size, UINT64_MAX - totals_.expected_bytes);
        const std::string name = from.name_of(from_path);
        const bool permitted = co_await file_permits_.acquire();
        if (!permitted)
            co_return;
        try {
            files.spawn(already_made, copy_file(from, std::move(from_path), to, std::move(to_path), *info));
        } catch (const std::bad_alloc&) { // its permit would be missing for the others
            file_permits_.release();
            fail(from, name, error(std::errc::not_enough_memory, "copy the file"));
        }
        co_return;
    }
    if (info->kind == file_kind::link) {
        auto target = co_await from.read_link(from_path);
        if (!target) {
            fail(from, from.name_of(from_path), target.error());
            co_return;
        }
        auto made = co_await to.make_link(to_path, *target);
        if (made && options_.preserve)
            made = co_await to.set_mode_and_times(to_path, *info);
        if (!made)
            fail(to, to.name_of(to_path), made.error());
        else
            ++totals_.links;
        co_return;
    }
    if (info->kind != file_kind::directory) {
        fail(from, from.name_of(from_path),
             error(std::errc::not_supported, "neither file, directory nor symbolic link"));
        co_return;
    }
    if (!options_.recursive) {
        fail(from, from.name_of(from_path), error(std::errc::is_a_directory, "use -r to copy directories"));
        co_return;
    }
    const bool entered = co_await enter(from, from_path, *info, to, to_path);
    if (!entered)
        co_return;
    ++totals_.directories;
    auto names = co_await from.list(from_path);
    if (!names) {
        fail(from, from.name_of(from_path), names.error());
        co_return;
    }
    // The times of a directory can be set only when nothing more is put into it.
    if (options_.preserve)
        finish_.emplace_back(to_path, *info);
    std::ranges::sort(*names);
    std::uint64_t ahead = names->size();
    for (const std::string& name : *names) {
        if (over_) {
            left_out_ += ahead;
            co_return;
        }
        --ahead;
        // A slash or a NUL would lead the copy elsewhere.
        if (!nfs::is_name(name)) {
            fail(from, join(from.name_of(from_path), name), no_name);
            continue;
        }
        co_await copy_entry(from, join(from_path, name), to, join(to_path, name), files);
    }
}

task<bool> copier::enter(store& from, const std::string& from_path, const file_info& info, store& to,
                         const std::string& to_path)
{
    const bool top = !top_;
    if (!top && info.id == top_->id) {
        const bool itself = co_await is_top(from, from_path, to);
        if (itself) {
            fail(from, from.name_of(from_path), into_itself);
            co_return false;
        }
    }
    auto made = co_await to.make_directory(to_path, info.mode);
    auto there = result<file_info>(info);
    if (made && top)
        there = co_await to.stat(to_path, true);
    if (!made || !there) {
        fail(to, to.name_of(to_path), made ? there.error() : made.error());
        co_return false;
    }
    if (top) {
        top_ = *there;
        top_path_ = to_path;
    }
    if (top && same_file(from, info, to, *top_)) {
        fail(from, from.name_of(from_path), into_itself);
        co_return false;
    }
    co_return true;
}

// Its times change while files are put into it.
task<bool> copier::is_top(store& from, std::string from_path, store& to)
{
    for (int attempt = 0; attempt < 100; ++attempt) {
        auto before = co_await to.stat(top_path_, true);
        auto here = co_await from.stat(from_path, false);
        auto after = co_await to.stat(top_path_, true);
        if (!before || !here || !after)
            co_return false; // what is wrong is told by what comes next
        if (same_file(from, *here, to, *after))
            co_return true;
        if (equal(before->ctime, after->ctime) && before->size == after->size)
            co_return false;
    }
    co_return true; // of the same number, and never at rest: better refused than copied without end
}

task<bool> copier::is_itself(store& from, const file_info& info, store& to, std::string to_path)
{
    auto there = co_await to.stat(std::move(to_path), true);
    co_return there&& same_file(from, info, to, *there);
}

task<void> copier::copy_file(store& from, std::string from_path, store& to, std::string to_path,
                             file_info info)
{
    const held_permit permit(file_permits_);
    std::optional<error> failed;
    std::string where = from.name_of(from_path);
    const store* by = &from;
    auto source = co_await from.open(from_path);
    const bool itself = co_await is_itself(from, info, to, to_path);
    if (!source) {
        failed = source.error();
    } else if (itself) {
        failed = error(std::errc::invalid_argument, "source and target are the same file");
        [[maybe_unused]] const auto closed = co_await (*source)->close();
    } else {
        auto target = co_await to.create(to_path, info.mode);
        if (!target) {
            failed = target.error();
            where = to.name_of(to_path);
            by = &to;
        } else {
            sha256 hash;
            // Some files have no size until they are read.
            one_file f(**source, **target, std::min(from.transfer_size(), to.transfer_size()),
                       info.size != 0 ? info.size : UINT64_MAX);
            if (options_.checksum)
                f.hash = &hash;
            (*target)->expect(info.size);
            const bool there = co_await copied_within(from, to, f);
            if (there)
                f.next = f.size;
            auto copied = co_await copy_data(f);
            std::string digest;
            if (copied && options_.checksum) {
                digest = hash.finish();
                auto written = co_await to.open(to_path);
                auto found = result<std::string>(error(std::errc::io_error));
                if (written) {
                    found = co_await digest_of(**written, f.chunk, f.hashed);
                    [[maybe_unused]] const auto closed = co_await (*written)->close();
                }
                if (!written)
                    copied = written.error();
                else if (!found)
                    copied = found.error();
                else if (*found != digest)
                    copied = error(std::errc::io_error, "checksum differs after the copy");
            }
            if (copied && options_.preserve)
                copied = co_await to.set_mode_and_times(to_path, info);
            if (!f.by_source)
                by = &to;
            if (!copied)
                failed = copied.error();
            else if (options_.checksum)
                note_checksum(to.name_of(to_path), std::move(digest));
        }
        [[maybe_unused]] const auto closed = co_await (*source)->close();
    }
    if (failed)
        fail(*by, where, *failed);
    else
        ++totals_.files;
}

// What one read and one write move is moved so: to open the source once more takes as many calls. A checksum is of what was read.
task<bool> copier::copied_within(store& from, store& to, one_file& f)
{
    if (runtime_.options().layouts == layout_use::require) // bytes are to go by RDMA
        co_return false;
    if (options_.checksum || f.size <= f.chunk || f.size == UINT64_MAX)
        co_return false;
    std::uint64_t told = 0;
    std::function<void(std::uint64_t)> progress = [this, &told](std::uint64_t bytes) {
        told += bytes;
        totals_.bytes += bytes;
    };
    auto copied = co_await to.copy_within(from, f.from, f.to, f.size, std::move(progress));
    totals_.bytes -= told;
    if (!copied && ends_all(copied.error())) {
        f.failed = copied.error();
        co_return true;
    }
    if (!copied || *copied != f.size) // reading tells why it was less
        co_return false;
    totals_.bytes += f.size;
    co_return true;
}

task<result<void>> copier::copy_data(one_file& f)
{
    scope workers(runtime_.shard());
    for (unsigned i = 0; i < (f.size == UINT64_MAX ? 1 : options_.depth) && !f.done(); ++i) {
        try {
            workers.spawn(already_made, copy_chunks(f));
        } catch (const std::bad_alloc&) { // those that there are copy all of it
            if (i == 0)
                f.failed = error(std::errc::not_enough_memory, "copy the file");
            break;
        }
    }
    co_await workers.join();
    if (!f.failed) {
        const auto cut = co_await f.to.cut(f.end.value_or(f.size));
        if (!cut)
            f.failed = cut.error();
    } else {
        (void)co_await f.to.take_back(f.written);
    }
    auto closed = co_await f.to.close();
    if (f.failed)
        co_return *f.failed;
    co_return closed;
}

task<void> copier::copy_chunks(one_file& f)
{
    while (!f.done()) {
        const std::uint64_t begin = f.next;
        f.next += f.chunk;
        const auto wanted = static_cast<std::uint32_t>(std::min<std::uint64_t>(f.chunk, f.size - begin));
        if (!co_await chunk_permits_.acquire())
            co_return;
        const held_permit permit(chunk_permits_);
        try {
            // A short read is the end, or a server that gives less than was asked.
            for (std::uint32_t done = 0; done < wanted && !f.failed;) {
                auto data = co_await f.from.read(begin + done, wanted - done);
                if (!data) {
                    if (!f.failed) {
                        f.by_source = true;
                        f.failed = data.error();
                    }
                    break;
                }
                const auto size = static_cast<std::uint32_t>(data->size());
                if (size == 0) {
                    f.end = f.end ? std::min(*f.end, begin + done) : begin + done;
                    break;
                }
                if (f.hash != nullptr) {
                    while (f.hashed != begin + done && !f.failed) {
                        f.turn.reset();
                        if (f.end && *f.end <= begin)
                            f.failed = error(std::errc::io_error, "the file changed while it was copied");
                        else if (!co_await f.turn.wait())
                            f.failed = error(std::errc::operation_canceled);
                    }
                    if (f.failed)
                        break;
                    for (auto piece : data->pieces())
                        f.hash->update(piece);
                    f.hashed += size;
                    f.turn.set();
                }
                auto written = co_await f.to.write(begin + done, std::move(*data));
                if (!written) {
                    if (!f.failed)
                        f.failed = written.error();
                    break;
                }
                done += size;
                f.written = std::max(f.written, begin + done);
                totals_.bytes += size;
            }
        } catch (const std::bad_alloc&) { // the others must not wait for this chunk
            if (!f.failed)
                f.failed = error(std::errc::not_enough_memory, "copy the file");
        }
        f.turn.set();
    }
}

task<result<std::string>> copier::digest_of(open_file& file, std::uint32_t chunk, std::uint64_t size)
{
    sha256 hash;
    for (std::uint64_t offset = 0;;) {
        auto data = co_await file.read(offset, chunk);
        if (!data)
            co_return data.error();
        if (data->empty())
            co_return hash.finish();
        for (auto piece : data->pieces())
            hash.update(piece);
        offset += data->size();
        if (offset > size)
            co_return error(std::errc::io_error, "the copy is longer than what was written", offset);
    }
}

} // namespace verbena::cli
