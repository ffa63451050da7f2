// SPDX-License-Identifier: Apache-2.0
// Extended attributes of the name space "user", with the caller's rights and on the pool.
#include "backend.hpp"

#include <algorithm>
#include <optional>
#include <sys/xattr.h>

namespace verbena::posixfs {

namespace {

constexpr std::string_view prefix = "user.";
constexpr std::size_t longest_name = 255 - prefix.size();

/// A name as the kernel knows it, and 0 or the errno of the rule that it broke.
class xattr_name {
public:
    explicit xattr_name(std::string_view name)
    {
        if (name.empty() || name.find('\0') != name.npos)
            error_ = EINVAL;
        else if (name.size() > longest_name)
            error_ = ENAMETOOLONG;
        else
            text_ = std::string(prefix) + std::string(name);
    }
    int error() const noexcept { return error_; }
    const char* text() const noexcept { return text_.c_str(); }

private:
    std::string text_;
    int error_ = 0;
};

} // namespace

task<result<file_ref>> backend::open_live(shard& s, const storage::handle& h)
{
    auto opened_file = co_await open_file(s, h);
    if (!opened_file)
        co_return opened_file.error();
    file_ref f = std::move(*opened_file);
    struct stat st{};
    if (auto live = co_await stat_live(s, *f, f->path.get(), st); !live)
        co_return live.error();
    co_return f;
}

task<result<std::vector<std::byte>>> backend::getxattr(const storage::request& r, const storage::handle& file,
                                                       std::string_view name)
{
    const xattr_name checked(name);
    if (checked.error() != 0)
        co_return error::from_errno(checked.error(), "the name of an extended attribute");
    shard& s = at(co_await this_reactor());
    auto opened = co_await open_live(s, file);
    if (!opened)
        co_return opened.error();
    const file_ref f = std::move(*opened);
    auto job = [fd = f->path.get(), &checked, &who = r.who]() -> result<std::vector<std::byte>> {
        const acting_as as(who);
        if (!as)
            return as.error();
        std::vector<std::byte> value(largest_value);
        const ssize_t n = ::getxattr(fd_path(fd).text(), checked.text(), value.data(), value.size());
        if (n < 0)
            return errno_error("getxattr");
        value.resize(static_cast<std::size_t>(n));
        return value;
    };
    co_return co_await pool_.try_run(std::move(job));
}

task<result<std::vector<std::string>>> backend::listxattrs(const storage::request& r,
                                                           const storage::handle& file)
{
    shard& s = at(co_await this_reactor());
    auto opened = co_await open_live(s, file);
    if (!opened)
        co_return opened.error();
    const file_ref f = std::move(*opened);
    auto job = [fd = f->path.get(), &who = r.who]() -> result<std::vector<std::string>> {
        const acting_as as(who);
        if (!as)
            return as.error();
        std::string all(largest_value, 0);
        const ssize_t n = ::listxattr(fd_path(fd).text(), all.data(), all.size());
        if (n < 0)
            return errno_error("listxattr");
        std::vector<std::string> names;
        std::string_view left(all.data(), static_cast<std::size_t>(n));
        while (!left.empty()) {
            const std::string_view name = left.substr(0, left.find('\0'));
            if (name.starts_with(prefix))
                names.emplace_back(name.substr(prefix.size()));
            left.remove_prefix(std::min(name.size() + 1, left.size()));
        }
        return names;
    };
    co_return co_await pool_.try_run(std::move(job));
}

template<class Change>
task<result<storage::change>> backend::change_xattrs(const storage::request& r, const storage::handle& file,
                                                     std::string_view name, Change change)
{
    if (refuses_changes())
        co_return error::from_errno(EROFS, "the export is read-only");
    const xattr_name checked(name);
    if (checked.error() != 0)
        co_return error::from_errno(checked.error(), "the name of an extended attribute");
    shard& s = at(co_await this_reactor());
    auto opened = co_await open_live(s, file);
    if (!opened)
        co_return opened.error();
    const file_ref f = std::move(*opened);
    auto job = [this, &f = *f, fd = f->path.get(), &order = order_of(*f), &checked, &change,
                &who = r.who]() -> result<observed_change> {
        struct stat st{};
        if (file_status(fd, st) != 0)
            return errno_error("fstat");
        observed_change c = observe(f);
        std::optional<change_order::turn> turn; // of a directory: see setattr()
        if (S_ISDIR(st.st_mode))
            turn.emplace(order, st);
        const acting_as as(who);
        if (!as)
            return as.error();
        if (turn)
            turn->begin(fd, c);
        if (change(fd_path(fd).text(), checked.text()) != 0)
            return errno_error("a change of an extended attribute");
        if (turn)
            turn->end(fd, c);
        else
            c.seen = c.look_after(fd);
        return c;
    };
    auto done = co_await pool_.try_run(std::move(job));
    if (!done)
        co_return done.error();
    if (!options_.async) {
        const auto kind = f->is_directory() ? sync_group::what::metadata : sync_group::what::file;
        if (auto synced = co_await settle(f, kind); !synced)
            co_return synced.error();
    }
    co_return change_of(*done, *f);
}

task<result<storage::change>> backend::setxattr(const storage::request& r, const storage::handle& file,
                                                std::string_view name, std::span<const std::byte> value,
                                                storage::xattr_mode mode)
{
    const int flags = mode == storage::xattr_mode::create    ? XATTR_CREATE
                      : mode == storage::xattr_mode::replace ? XATTR_REPLACE
                                                             : 0;
    auto change = [value, flags](const char* path, const char* text) {
        return ::setxattr(path, text, value.data(), value.size(), flags);
    };
    return change_xattrs(r, file, name, std::move(change));
}

task<result<storage::change>> backend::removexattr(const storage::request& r, const storage::handle& file,
                                                   std::string_view name)
{
    auto change = [](const char* path, const char* text) { return ::removexattr(path, text); };
    return change_xattrs(r, file, name, std::move(change));
}

} // namespace verbena::posixfs
