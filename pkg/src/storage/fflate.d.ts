// The build bundles the writer of fflate into this one file, so that the package stays without dependencies.
export { Zip, type ZipInputFile } from "fflate";
