// SPDX-License-Identifier: Apache-2.0
// Files of a server that is asked in NFS version 3.
#include "remote.hpp"

#include <verbena/protocols/nfs/client/v3/file.hpp>

#include <bit>

namespace verbena::cli {
namespace {

namespace v3 = nfs::v3;

v3::nfs_fh3 to_v3(const handle& of) noexcept
{
    v3::nfs_fh3 out;
    (void)out.assign(of.bytes()); // it came from there
    return out;
}

file_time to_time(const v3::nfstime3& t) noexcept { return {t.seconds, t.nseconds}; }

attributes to_attributes(const v3::fattr3& a) noexcept
{
    attributes out;
    out.type = static_cast<file_type>(a.type); // numbered alike
    out.mode = a.mode & 07777;
    out.links = a.nlink;
    out.uid = a.uid;
    out.gid = a.gid;
    out.size = a.size;
    out.used = a.used;
    out.device = {a.rdev.specdata1, a.rdev.specdata2};
    out.fsid = {a.fsid, 0};
    out.fileid = a.fileid;
    out.atime = to_time(a.atime);
    out.mtime = to_time(a.mtime);
    out.ctime = to_time(a.ctime);
    return out;
}

result<node> to_node(const result<nfs::node>& found)
{
    if (!found)
        return found.error();
    return node{to_handle(found->handle), to_attributes(found->attributes)};
}

v3::set_time3 to_v3(const nfs::v4::settime4& t) noexcept
{
    v3::set_time3 out;
    out.how = t.set_it == nfs::v4::time_how4::set_to_client_time ? v3::time_how::set_to_client_time
                                                                 : v3::time_how::set_to_server_time;
    out.time = v3::nfstime3::nearest(t.time.seconds, t.time.nseconds);
    return out;
}

v3::sattr3 to_v3(const new_attributes& set) noexcept
{
    v3::sattr3 out;
    out.mode = set.mode;
    out.uid = set.uid;
    out.gid = set.gid;
    out.size = set.size;
    if (set.atime)
        out.atime = to_v3(*set.atime);
    if (set.mtime)
        out.mtime = to_v3(*set.mtime);
    return out;
}

class file3 final : public open_file {
public:
    file3(nfs::client& c, const nfs::node& n) : client_(c), file_(c, n) {}

    task<result<rpc::payload>> read(std::uint64_t offset, std::uint32_t count) override
    {
        auto read = co_await file_.read(offset, count);
        if (!read)
            co_return read.error();
        co_return std::move(read->data);
    }
    task<result<void>> write(std::uint64_t offset, rpc::payload data) override
    {
        return file_.write(offset, std::move(data));
    }
    task<result<void>> cut(std::uint64_t length) override
    {
        if (file_.node().attributes.size <= length)
            co_return result<void>();
        v3::sattr3 set;
        set.size = length;
        co_return co_await client_.setattr(file_.node().handle, set);
    }
    task<result<void>> close() override { return file_.commit(); }

private:
    nfs::client& client_;
    nfs::file file_;
};

class remote3 final : public remote {
public:
    explicit remote3(nfs::client& c) : client_(c) {}

    task<result<node>> lookup(const handle& directory, std::string_view name) override
    {
        const v3::nfs_fh3 in = to_v3(directory);
        co_return to_node(co_await client_.lookup(in, name));
    }
    task<result<node>> walk(const handle& start, std::string_view path, bool follow_last) override
    {
        const v3::nfs_fh3 from = to_v3(start);
        co_return to_node(co_await client_.walk(from, path, follow_last));
    }
    task<result<std::string>> readlink(const handle& link) override
    {
        const v3::nfs_fh3 of = to_v3(link);
        co_return co_await client_.readlink(of);
    }
    task<result<std::vector<directory_entry>>> list(const handle& directory, bool plus,
                                                    std::size_t most) override
    {
        const v3::nfs_fh3 of = to_v3(directory);
        auto entries = co_await client_.list(of, plus, most);
        if (!entries)
            co_return entries.error();
        std::vector<directory_entry> out(entries->size());
        for (std::size_t i = 0; i < out.size(); ++i) {
            nfs::directory_entry& from = (*entries)[i];
            out[i].name = std::move(from.name);
            if (from.handle && from.attributes)
                out[i].found = node{to_handle(*from.handle), to_attributes(*from.attributes)};
        }
        co_return std::move(out);
    }
    task<result<node>> mkdir(const handle& directory, std::string_view name,
                             const new_attributes& set) override
    {
        const v3::nfs_fh3 in = to_v3(directory);
        const v3::sattr3 wanted = to_v3(set);
        co_return to_node(co_await client_.mkdir(in, name, wanted));
    }
    task<result<void>> symlink(const handle& directory, std::string_view name, std::string_view target,
                               const new_attributes& set) override
    {
        const v3::nfs_fh3 in = to_v3(directory);
        const v3::sattr3 wanted = to_v3(set);
        auto made = co_await client_.symlink(in, name, target, wanted);
        if (!made)
            co_return made.error();
        co_return result<void>();
    }
    task<result<void>> remove(const handle& directory, std::string_view name) override
    {
        const v3::nfs_fh3 in = to_v3(directory);
        co_return co_await client_.remove(in, name);
    }
    task<result<void>> rmdir(const handle& directory, std::string_view name) override
    {
        const v3::nfs_fh3 in = to_v3(directory);
        co_return co_await client_.rmdir(in, name);
    }
    task<result<void>> rename(const handle& from_directory, std::string_view from, const handle& to_directory,
                              std::string_view to) override
    {
        const v3::nfs_fh3 out_of = to_v3(from_directory);
        const v3::nfs_fh3 into = to_v3(to_directory);
        co_return co_await client_.rename(out_of, from, into, to);
    }
    task<result<void>> setattr(const handle& object, const new_attributes& set) override
    {
        const v3::nfs_fh3 of = to_v3(object);
        const v3::sattr3 wanted = to_v3(set);
        co_return co_await client_.setattr(of, wanted);
    }
    task<result<nfs::v4::file_system_space>> space(const handle& object) override
    {
        const v3::nfs_fh3 of = to_v3(object);
        auto told = co_await client_.fsstat(of);
        if (!told)
            co_return told.error();
        nfs::v4::file_system_space out;
        out.total = told->tbytes;
        out.free = told->fbytes;
        out.available = told->abytes;
        out.files = told->tfiles;
        out.files_free = told->ffiles;
        out.files_available = told->afiles;
        co_return out;
    }
    task<result<std::unique_ptr<open_file>>> open(const node& object) override
    {
        nfs::node n;
        n.handle = to_v3(object.handle);
        n.attributes.size = object.attributes.size;
        co_return std::unique_ptr<open_file>(std::make_unique<file3>(client_, n));
    }
    task<result<std::unique_ptr<open_file>>> create(const handle& directory, std::string_view name,
                                                    const new_attributes& set) override
    {
        const v3::nfs_fh3 in = to_v3(directory);
        const v3::sattr3 wanted = to_v3(set);
        auto made = co_await client_.create(in, name, wanted, false);
        if (!made)
            co_return made.error();
        co_return std::unique_ptr<open_file>(std::make_unique<file3>(client_, *made));
    }
    bool copies_from(const remote&) const noexcept override { return false; }
    task<result<std::uint64_t>> copy(open_file&, open_file&, std::uint64_t,
                                     std::function<void(std::uint64_t)>) override
    {
        co_return error(std::errc::not_supported, "version 3 copies nothing within the server");
    }
    task<result<void>> null() override { return client_.null(); }
    std::uint32_t read_size() const noexcept override { return client_.limits().read; }
    std::uint32_t write_size() const noexcept override { return client_.limits().write; }

private:
    nfs::client& client_;
};

} // namespace

handle to_handle(const v3::nfs_fh3& of) noexcept { return handle(of.bytes()); }

std::uint64_t file_system_of(const attributes& a) noexcept
{
    return a.fsid.major ^ std::rotl(a.fsid.minor, 32);
}

std::unique_ptr<remote> make_remote(nfs::client& of) { return std::make_unique<remote3>(of); }

} // namespace verbena::cli
