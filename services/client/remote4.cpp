// SPDX-License-Identifier: Apache-2.0
// Files of a server that is asked in NFS version 4.1 or 4.2.
#include "remote.hpp"

#include <verbena/protocols/nfs/client/v4/file.hpp>

#include <algorithm>
#include <cerrno>

namespace verbena::cli {
namespace {

namespace v4 = nfs::v4;

class file4 final : public open_file {
public:
    explicit file4(std::unique_ptr<v4::file> f) noexcept : file_(std::move(f)) {}

    task<result<rpc::payload>> read(std::uint64_t offset, std::uint32_t count) override
    {
        auto read = co_await file_->read(offset, count);
        if (!read)
            co_return read.error();
        co_return std::move(read->data);
    }
    task<result<void>> write(std::uint64_t offset, rpc::payload data) override
    {
        return file_->write(offset, std::move(data));
    }
    task<result<void>> cut(std::uint64_t length) override
    {
        if (file_->node().attributes.size <= length)
            co_return result<void>();
        co_return co_await file_->truncate(length);
    }
    task<result<void>> close() override { return file_->close(); }
    v4::file& file() noexcept { return *file_; }

private:
    std::unique_ptr<v4::file> file_;
};

// Its bytes go by RDMA where the server gives layouts.
class file4_by_layout final : public open_file {
public:
    explicit file4_by_layout(std::unique_ptr<v4::pnfs::layout_file> f) noexcept
        : file_(std::move(f)), had_(file_->size())
    {
    }

    task<result<rpc::payload>> read(std::uint64_t offset, std::uint32_t count) override
    {
        auto read = co_await file_->read(offset, count);
        if (!read)
            co_return read.error();
        co_return std::move(read->data);
    }
    task<result<void>> write(std::uint64_t offset, rpc::payload data) override
    {
        return file_->write(offset, std::move(data));
    }
    task<result<void>> cut(std::uint64_t length) override
    {
        // It may be longer than what was written: it goes on to where it was expected to.
        if (file_->size() <= length)
            co_return result<void>();
        co_return co_await file_->truncate(length);
    }
    void expect(std::uint64_t size) override { file_->expect(size); }
    task<result<void>> take_back(std::uint64_t end) override { return cut(std::max(end, had_)); }
    task<result<void>> close() override { return file_->close(); }
    v4::pnfs::layout_file& file() noexcept { return *file_; }

private:
    std::unique_ptr<v4::pnfs::layout_file> file_;
    const std::uint64_t had_; // bytes, when it was opened
};

// For what the server does with a file by itself.
v4::file& plain_file(open_file& of)
{
    if (auto* const by_layout = dynamic_cast<file4_by_layout*>(&of))
        return by_layout->file().plain();
    return static_cast<file4&>(of).file();
}

// Servers that know nothing of each other may give the same name, by which they seem to be one (knfsd gives that of its host), and a handle of
// the one may then be that of another file of the other.
bool is_same_object(const attributes& a, const attributes& b) noexcept
{
    return a.type == b.type && a.fsid.major == b.fsid.major && a.fsid.minor == b.fsid.minor &&
           a.fileid == b.fileid;
}

class remote4 final : public remote {
public:
    remote4(v4::client& c, v4::pnfs::layout_user* layouts) : client_(c), layouts_(layouts) {}

    task<result<node>> lookup(const handle& directory, std::string_view name) override
    {
        return client_.lookup(directory, name);
    }
    task<result<node>> walk(const handle& start, std::string_view path, bool follow_last) override
    {
        return client_.walk(start, path, follow_last);
    }
    task<result<std::string>> readlink(const handle& link) override { return client_.readlink(link); }
    task<result<std::vector<directory_entry>>> list(const handle& directory, bool plus,
                                                    std::size_t most) override
    {
        return client_.list(directory, plus, most);
    }
    task<result<node>> mkdir(const handle& directory, std::string_view name,
                             const new_attributes& set) override
    {
        return client_.mkdir(directory, name, set);
    }
    task<result<void>> symlink(const handle& directory, std::string_view name, std::string_view target,
                               const new_attributes& set) override
    {
        auto made = co_await client_.symlink(directory, name, target, set);
        if (!made)
            co_return made.error();
        co_return result<void>();
    }
    task<result<void>> remove(const handle& directory, std::string_view name) override
    {
        return client_.remove(directory, name);
    }
    task<result<void>> rmdir(const handle& directory, std::string_view name) override
    {
        return client_.remove(directory, name);
    }
    task<result<void>> rename(const handle& from_directory, std::string_view from, const handle& to_directory,
                              std::string_view to) override
    {
        return client_.rename(from_directory, from, to_directory, to);
    }
    task<result<void>> setattr(const handle& object, const new_attributes& set) override
    {
        return client_.setattr(object, set);
    }
    task<result<v4::file_system_space>> space(const handle& object) override { return client_.space(object); }
    task<result<std::unique_ptr<open_file>>> open(const node& object) override
    {
        auto opened = co_await client_.open(object, v4::share4::access_read);
        if (!opened)
            co_return opened.error();
        co_return used(std::move(*opened));
    }
    task<result<std::unique_ptr<open_file>>> create(const handle& directory, std::string_view name,
                                                    const new_attributes& set) override
    {
        auto made =
            co_await client_.create(directory, name, set, v4::open_how::unchecked, v4::share4::access_write);
        if (!made)
            co_return made.error();
        co_return used(std::move(*made));
    }
    bool copies_from(const remote& other) const noexcept override
    {
        const auto* const same = dynamic_cast<const remote4*>(&other);
        return same != nullptr && client_.session().minor_version() >= 2 &&
               client_.session().is_of_one_server_with(same->client_.session());
    }
    task<result<std::uint64_t>> copy(open_file& from, open_file& to, std::uint64_t length,
                                     std::function<void(std::uint64_t)> progress) override
    {
        const node told = plain_file(from).node();
        auto source = co_await client_.open(told, v4::share4::access_read);
        if (!source)
            co_return source.error();
        const attributes& here = (*source)->node().attributes;
        auto copied = result<std::uint64_t>(error(std::errc::not_supported, "COPY from another server"));
        if (is_same_object(here, told.attributes)) {
            if (here.size == told.attributes.size && here.change == told.attributes.change)
                copied = co_await plain_file(to).copy_from(**source, length, std::move(progress));
            else
                copied = error(std::error_code(ESTALE, std::generic_category()),
                               "COPY of what changes meanwhile, or of another file");
        }
        (void)co_await (*source)->close(); // nothing was written
        co_return copied;
    }
    task<result<void>> null() override { return client_.session().null(); }
    std::uint32_t read_size() const noexcept override { return client_.limits().read; }
    std::uint32_t write_size() const noexcept override { return client_.limits().write; }

private:
    std::unique_ptr<open_file> used(std::unique_ptr<v4::file> f)
    {
        if (layouts_ == nullptr)
            return std::make_unique<file4>(std::move(f));
        return std::make_unique<file4_by_layout>(layouts_->use(std::move(f)));
    }
    v4::client& client_;
    v4::pnfs::layout_user* const layouts_;
};

} // namespace

std::unique_ptr<remote> make_remote(v4::client& of, v4::pnfs::layout_user* layouts)
{
    return std::make_unique<remote4>(of, layouts);
}

} // namespace verbena::cli
