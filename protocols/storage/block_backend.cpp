// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/storage/block_backend.hpp>

namespace verbena::storage {

std::unique_ptr<block_backend> block_backend::for_client(std::string_view) { return nullptr; }

result<void> check_range(const block_properties& p, std::uint64_t offset, std::uint64_t length,
                         bool change) noexcept
{
    if (change && p.read_only)
        return error(std::errc::read_only_file_system, "the device is read-only");
    if (((offset | length) & (p.block_size - 1)) != 0)
        return error(std::errc::invalid_argument, "a range of a device is of whole blocks", offset);
    if (offset > p.size || length > p.size - offset)
        return error(std::errc::invalid_argument, "a range beyond the end of the device", offset);
    return {};
}

} // namespace verbena::storage
