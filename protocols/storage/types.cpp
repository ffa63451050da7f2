// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/storage/open_file.hpp>

#include <string>
#include <unistd.h>

namespace verbena::storage {

const std::error_category& storage_category() noexcept
{
    static const class : public std::error_category {
        const char* name() const noexcept override { return "storage"; }
        std::string message(int value) const override
        {
            switch (errc(value)) {
            case errc::bad_cookie: return "stale directory cookie";
            case errc::not_sync: return "the file changed since the guard time";
            case errc::bad_handle: return "not a handle of this back end";
            case errc::too_small: return "no room for one entry";
            case errc::crosses_mount: return "a mount beneath the export, and crossmnt is off";
            case errc::delayed: return "try again later";
            }
            return "unknown storage error";
        }
    } category;
    return category;
}

std::error_code make_error_code(errc e) noexcept { return {static_cast<int>(e), storage_category()}; }

bool request::may_by_open(unsigned use) const noexcept { return open != nullptr && open->lets(who, use); }

bool request::may_read_source_by_open() const noexcept
{
    return source != nullptr && source->lets(who, R_OK);
}

} // namespace verbena::storage
