// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/client/v3/file.hpp>

namespace verbena::nfs {

task<result<read_result>> file::read(std::uint64_t offset, std::uint32_t count)
{
    // The attributes may be younger than the data, so that one answer can contradict itself while somebody writes.
    for (bool first = true;; first = false) {
        auto got = co_await client_.read(node_.handle, offset, count);
        if (!got)
            co_return got.error();
        const std::uint64_t end = offset + got->data.size();
        const bool beyond = end > node_.attributes.size && !got->data.empty();
        if (count == 0 || (!beyond && !got->eof && !got->data.empty()))
            co_return std::move(got);
        if (!got->attributes) {
            auto attributes = co_await client_.getattr(node_.handle);
            if (!attributes)
                co_return attributes.error();
            got->attributes = *attributes;
        }
        const std::uint64_t size = got->attributes->size;
        if (beyond && end > size)
            co_return error(std::errc::io_error, "READ gives bytes beyond the size that the server tells",
                            size);
        if (!got->data.empty()) {
            got->eof = got->eof && end >= size; // else the next READ tells
            co_return std::move(got);
        }
        if (got->eof && offset >= size)
            co_return std::move(got);
        if (!first)
            co_return error(std::errc::io_error, "READ gives nothing although the file goes on", offset);
    }
}

task<result<write_result>> file::send(std::uint64_t offset, rpc::payload data)
{
    return client_.write(node_.handle, offset, std::move(data), v3::stable_how::unstable);
}

task<result<v3::writeverf3>> file::sync() { return client_.commit(node_.handle, 0, 0); }

} // namespace verbena::nfs
