// SPDX-License-Identifier: Apache-2.0
#include "directory.hpp"

#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace verbena::posixfs {

namespace {

// struct linux_dirent64, which no header declares: d_ino 8, d_off 8, d_reclen 2, d_type 1, d_name.
constexpr std::size_t offset_at = 8;
constexpr std::size_t length_at = 16;
constexpr std::size_t name_at = 19;

template<class T>
T field(const std::byte* entry, std::size_t at) noexcept
{
    T value;
    std::memcpy(&value, entry + at, sizeof(value));
    return value;
}

} // namespace

directory_stream::directory_stream(const storage::handle& h, const storage::credential& who, unique_fd fd,
                                   const struct stat& st, std::uint64_t cookie)
    : handle_(h),
      who_(who),
      fd_(std::move(fd)),
      stat_(st),
      cookie_(cookie),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(buffer_size))
{
    if (cookie != 0)
        ::lseek(fd_.get(), static_cast<off_t>(cookie), SEEK_SET);
}

directory_stream::raw_entry directory_stream::entry_at(std::size_t position) const noexcept
{
    const std::byte* at = buffer_.get() + position;
    raw_entry e;
    e.inode = field<std::uint64_t>(at, 0);
    e.cookie = field<std::uint64_t>(at, offset_at);
    e.name = reinterpret_cast<const char*>(at + name_at);
    return e;
}

std::optional<directory_stream::raw_entry> directory_stream::peek() const noexcept
{
    if (position_ >= length_)
        return std::nullopt;
    return entry_at(position_);
}

void directory_stream::look_ahead(std::size_t count, std::vector<listed_entry>& out) const
{
    for (std::size_t at = position_; at < length_ && count > 0; --count) {
        listed_entry e;
        e.raw = entry_at(at);
        out.push_back(e);
        at += field<std::uint16_t>(buffer_.get() + at, length_at);
    }
}

void directory_stream::skip(const raw_entry& e) noexcept
{
    position_ += field<std::uint16_t>(buffer_.get() + position_, length_at);
    cookie_ = e.cookie;
}

result<bool> directory_stream::fill()
{
    if (position_ < length_)
        return true;
    const long n = ::syscall(SYS_getdents64, fd_.get(), buffer_.get(), buffer_size);
    if (n < 0)
        return error::from_errno(errno, "getdents64");
    position_ = 0;
    length_ = static_cast<std::size_t>(n);
    return n != 0;
}

bool directory_stream::unchanged(const struct stat& st) const noexcept
{
    return st.st_ctim.tv_sec == stat_.st_ctim.tv_sec && st.st_ctim.tv_nsec == stat_.st_ctim.tv_nsec &&
           st.st_mode == stat_.st_mode && st.st_uid == stat_.st_uid && st.st_gid == stat_.st_gid;
}

std::unique_ptr<directory_stream> stream_cache::take(const storage::handle& h, const storage::credential& who,
                                                     std::uint64_t cookie)
{
    for (auto at = streams_.rbegin(); at != streams_.rend(); ++at) {
        if ((*at)->continues(h, who, cookie)) {
            auto found = std::move(*at);
            streams_.erase(std::next(at).base());
            return found;
        }
    }
    return nullptr;
}

void stream_cache::keep(std::unique_ptr<directory_stream> s)
{
    if (streams_.size() >= max_streams)
        streams_.erase(streams_.begin());
    streams_.push_back(std::move(s));
}

} // namespace verbena::posixfs
