"use client";
import { useEffect } from "react";
import { start } from "../start.js";

let begun = false; // React runs an effect twice in development
export default function Page() {
  useEffect(() => {
    if (begun) return;
    begun = true;
    start();
  }, []);
  return <p>host</p>;
}
